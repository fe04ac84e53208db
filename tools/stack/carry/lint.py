# SPDX-License-Identifier: Apache-2.0
"""Lint the stack: every patch applies and is byte-stable, the pins meet each other's requirements, named files exist."""

from collections.abc import Iterator
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry import apply, links, patch_sources, pin_requirements, rebase, upstream_stores
from stack.carry.apply import Misfit
from stack.carry.export import export
from stack.carry.upstream_stores import Stores
from stack.model import extras, series
from stack.model.ids import CommitId
from stack.model.patch import Patch, trailers
from stack.model.series import State
from stack.model.stack import FILE, FOLDER, Stack

_OVER = frozenset({State.MERGED, State.DECLINED, State.INAPPROPRIATE})


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem of the stack; `place` is a file of the stack, or an upstream."""

    place: str
    problem: str


def lint(stores: Stores) -> tuple[Finding, ...]:
    """Find all problems of a stack that can be loaded.

    Raises:
        StackError: a pinned source cannot be obtained.

    """
    stack = stores.stack
    return (*_pins(stores), *_series(stack), *(finding for pin in stack.pins for finding in _patches(stores, pin.upstream)))


def _pins(stores: Stores) -> Iterator[Finding]:
    pins = stores.stack.pins
    for need in pin_requirements.unmet(rebase.needs_at_pins(stores), pins):
        yield Finding("pins.toml", need.sentence(pins.get(need.needs)))
    for problem in extras.disagreements(stores.stack.root, pins):
        yield Finding(extras.FILE, problem)
    for pin in pins:
        if pin.within is not None:
            objects = stores.objects(pin.upstream)
            tree = objects.tree_of(upstream_stores.vendored_base(objects, pin, stores.obtain(pin.within.upstream).commit))
            for path, actual in upstream_stores.changed_subtrees(objects, pin, tree).items():
                yield Finding("pins.toml", f"{pin.upstream}.subtrees.{path} is {pin.subtrees[path]}, the source has {actual}")


def _series(stack: Stack) -> Iterator[Finding]:
    for member in stack.series:
        place = f"{FOLDER}/{member.name}/{series.FILE}"
        if not member.patches and not member.landed and member.state not in _OVER:
            remove = f"take it out of {FOLDER}/{FILE} and remove its folder"
            yield Finding(place, f"has no patch, and its state is {member.state}: {remove}, or say what became of it")
        for proof in member.proves:
            file = stack.root / proof
            if not file.exists() or not file.resolve().is_relative_to(stack.root.resolve()):
                yield Finding(place, f"proves names {proof}, which is not there")
        for command in member.commands:
            for path in (*command.paths, *filter(None, [command.requirements])):
                if not (stack.root / path).exists():
                    yield Finding(place, f"`{command.run}` in proves needs {path}, which is not there")
        for ref in member.patches:
            if not any(key == "Signed-off-by" for key, _ in trailers(stack.patches[ref].message)):
                yield Finding(f"{FOLDER}/{ref.path}", "has no Signed-off-by")


def _patches(stores: Stores, upstream: str) -> Iterator[Finding]:
    """Check each patch on top of the earlier ones; leave out a patch that does not apply."""
    patches = stores.stack.order(upstream)
    if not patches:
        return
    for place, problem in patch_sources.problems(stores.stack, upstream):
        yield Finding(place, f"{problem}: {patch_sources.remedy(upstream)}")
    try:
        base = stores.base(upstream)
    except apply.DoesNotApply:
        yield Finding(upstream, "stands on a tree whose own patches do not apply")
        return
    objects = stores.objects(upstream)
    applied: list[tuple[Patch, CommitId]] = []
    unsure: set[str] = set()  # Files of patches that were left out: later patches of these files are not compared.
    tip = base
    for patch in patches:
        try:
            tree = apply.apply(objects, objects.tree_of(tip), patch)
        except StackError as bad:
            yield Finding(f"{FOLDER}/{patch.ref.path}", str(bad))
            continue
        if isinstance(tree, Misfit):
            yield Finding(f"{FOLDER}/{patch.ref.path}", f"does not apply: {tree}")
            unsure.update(apply.touched(patch))
            continue
        for problem in links.leaving(objects, tree, patch):
            yield Finding(f"{FOLDER}/{patch.ref.path}", problem)
        tip = apply.commit(objects, tree, tip, patch)
        applied.append((patch, tip))
    for (patch, _), data in zip(applied, export(objects, base, [commit for _, commit in applied]), strict=True):
        if data != patch.raw and unsure.isdisjoint(apply.touched(patch)):
            yield Finding(f"{FOLDER}/{patch.ref.path}", _unstable(patch.raw, data))


def _unstable(have: bytes, exported: bytes) -> str:
    """Describe where a patch file differs from git's export."""
    ours, theirs = have.split(b"\n"), exported.split(b"\n")
    line = next(
        (number for number, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their),
        min(len(ours), len(theirs)),
    )
    return f"is not byte-stable: line {line + 1} is not what `git format-patch` would write (`stack checkout` and `stack refresh` mend it)"
