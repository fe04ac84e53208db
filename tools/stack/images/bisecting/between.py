# SPDX-License-Identifier: Apache-2.0
"""Make the stacks between two: carry the good stack's patches from release to release, then replace its patches one by one."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import tomlkit

from stack.base.errors import StackError
from stack.carry.rebase import Conclusion, Request, conclude, rebase
from stack.carry.upstream_stores import Place, Stores
from stack.model import pins, series
from stack.model import stack as stacks
from stack.model.series import PatchRef
from stack.model.stack import FILE, FOLDER, Stack

Make = Callable[[Path], None]
_One = TypeVar("_One")


@dataclass(frozen=True, slots=True)
class Step:
    """One stack between the ends: its change from the stack before, and a function that writes it into a new folder.

    `make` raises StackError if the stack cannot be made because patches conflict.
    """

    change: str
    make: Make


@dataclass(frozen=True, slots=True)
class Way:
    """All steps from the good stack (excluded) to the bad one (the last step); the first `pins` steps move pins."""

    steps: tuple[Step, ...]
    pins: int


def way(good: Stack, bad: Stack, place: Place, work: Path) -> Way:
    """Find the steps from the good stack to the bad one; `work` is a folder for the stacks carried on the way.

    Raises:
        StackError: a source cannot be obtained, or the stacks have different upstreams.

    """
    if set(good.pins.names()) != set(bad.pins.names()):
        raise StackError(
            f"the good stack has {', '.join(good.pins.names())}, the bad one {', '.join(bad.pins.names())}",
            "only stacks of the same upstreams can be bisected",
        )
    steps: list[Step] = []
    now = good
    try:
        for upstream in good.pins.names():
            moves = tuple(_moves(now, bad, upstream, place))
            steps += [Step(f"{upstream} {tag}", partial(_moved, now, upstream, tag, place)) for tag in moves]
            if moves:
                now = _made(steps[-1], work / upstream)
        if now.pins != bad.pins:
            steps.append(Step(_rest(now, bad), partial(_with_pins, now, bad)))
            now = _made(steps[-1], work / "pins")
    except StackError as stuck:
        # The good patches cannot be carried further, so the remaining changes become a single step.
        whole = Step(f"{stuck.problem}: the remaining pins and all patches at once", partial(_copy, bad))
        return Way((*steps, whole), len(steps))
    return Way((*steps, *_patches(now, bad)), len(steps))


def _made(step: Step, folder: Path) -> Stack:
    step.make(folder)
    return stacks.load(folder)


def _moves(now: Stack, bad: Stack, upstream: str, place: Place) -> Iterator[str]:
    """Yield the releases of an upstream between both pins, and then the bad pin's release."""
    old, new = now.pins.get(upstream), bad.pins.get(upstream)
    if old.within is not None or old.tag == new.tag or old.tag is None or new.tag is None:
        return
    with Stores(now, place) as stores:
        tags = stores.tags(upstream)
    yield from new.releases.between(tags, old.tag, new.tag) or reversed(new.releases.between(tags, new.tag, old.tag))
    yield new.tag


def _moved(now: Stack, upstream: str, tag: str, place: Place, folder: Path) -> None:
    """Carry the stack to a release, with the companion pins that the release requires."""
    _copy(now, folder)
    with Stores(stacks.load(folder), place) as stores:
        work = rebase(stores, Request(upstream, tag, with_required=True))
        ended = conclude(work, allow_mismatch=True, allow_drift=True)
    if ended not in (Conclusion.SWITCHED, Conclusion.UNCHANGED):
        _, row = work.open[0]
        raise StackError(
            f"{row.patch.ref.path} cannot be carried to {upstream} {tag}", "a person has to: `stack rebase --workspace`"
        )


def _copy(source: Stack, folder: Path) -> None:
    """Copy the pins and the series of a stack."""
    shutil.copytree(source.root / FOLDER, folder / FOLDER)
    shutil.copyfile(source.root / pins.FILE, folder / pins.FILE)


def _with_pins(now: Stack, bad: Stack, folder: Path) -> None:
    _copy(now, folder)
    shutil.copyfile(bad.root / pins.FILE, folder / pins.FILE)


def _rest(now: Stack, bad: Stack) -> str:
    """Name the pins that differ when all releases are equal."""
    upstreams = [name for name in now.pins.names() if now.pins.get(name) != bad.pins.get(name)]
    return f"pins of {', '.join([*upstreams, *(['the base image'] if now.pins.base != bad.pins.base else [])])}"


def _patches(old: Stack, new: Stack) -> Iterator[Step]:
    """Yield a step for each patch that differs, in the order in which patches are applied."""
    order = [(name, _merged(_refs(old, name), _refs(new, name))) for name in _merged(_names(old), _names(new))]
    refs = [ref for _, inside in order for ref in inside]
    differing = [ref for ref in refs if _raw(old, ref) != _raw(new, ref)]
    for number, ref in enumerate(differing, 1):
        later = differing[number:]
        chosen = {other: raw for other in refs if (raw := _raw(old if other in later else new, other)) is not None}
        make = partial(_written, old, new, chosen, tuple(name for name, _ in order)) if later else partial(_copy, new)
        yield Step(f"{ref.path} {_kind(old, new, ref)}", make)
    if not differing and [*old.patches] != [*new.patches]:
        yield Step("the order of the patches", partial(_copy, new))


def _kind(old: Stack, new: Stack, ref: PatchRef) -> str:
    if ref not in old.patches:
        return "added"
    return "changed" if ref in new.patches else "dropped"


def _raw(stack: Stack, ref: PatchRef) -> bytes | None:
    return stack.patches[ref].raw if ref in stack.patches else None


def _names(stack: Stack) -> list[str]:
    return [series_.name for series_ in stack.series]


def _refs(stack: Stack, name: str) -> list[PatchRef]:
    return [ref for series_ in stack.series if series_.name == name for ref in series_.patches]


def _merged(old: Sequence[_One], new: Sequence[_One]) -> list[_One]:
    """Merge two sequences: the new order, with each old-only element after the one that it followed in the old sequence."""
    merged = list(new)
    for position, element in enumerate(old):
        if element not in merged:
            merged.insert(merged.index(old[position - 1]) + 1 if position else 0, element)
    return merged


def _written(old: Stack, new: Stack, chosen: Mapping[PatchRef, bytes], names: Sequence[str], folder: Path) -> None:
    """Write a stack with the new stack's pins and the chosen patches."""
    folder.mkdir()
    shutil.copyfile(new.root / pins.FILE, folder / pins.FILE)
    kept: list[str] = []
    for name in names:
        refs = tuple(ref for ref in chosen if ref.series == name)
        if not refs and name not in _names(new):
            continue
        kept.append(name)
        source = new if name in _names(new) else old
        text = (source.root / FOLDER / name / series.FILE).read_text(encoding="utf-8")
        target = folder / FOLDER / name / series.FILE
        target.parent.mkdir(parents=True)
        target.write_text(series.edited(text, refs), encoding="utf-8")
    for ref, raw in chosen.items():
        place = folder / FOLDER / ref.path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(raw)
    order = tomlkit.parse((new.root / FOLDER / FILE).read_text(encoding="utf-8"))
    order["series"] = kept
    (folder / FOLDER / FILE).write_text(tomlkit.dumps(order), encoding="utf-8")
