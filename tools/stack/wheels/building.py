# SPDX-License-Identifier: Apache-2.0
"""Build the wheels of a stack according to the decisions, and reuse wheels that were built before."""

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
from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.model.ids import Sha256
from stack.model.pins import Pin
from stack.model.stack import Stack
from stack.projects import Edits
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
from stack.wheels.decision import BUILT, Decision, Mode, WheelRequest, flavour, published, rules_of, version
from stack.wheels.overlay import Base, OverlayPlan, Patched
from stack.wheels.provenance import Made

STATEMENT = ".intoto.json"


@dataclass(frozen=True, slots=True)
class Built:
    """A finished wheel, which has a statement about its making next to it. `reused` is true if it had been built before."""

    upstream: str
    path: Path
    sha256: Sha256
    mode: Mode
    edited: tuple[str, ...]
    left_out: tuple[str, ...]
    reused: bool


@dataclass(frozen=True, slots=True)
class Library:
    """A file that a CMake target made."""

    upstream: str
    path: Path
    sha256: Sha256


@dataclass(frozen=True, slots=True)
class Chosen:
    """JIT modules to compile ahead of time: the upstream, its JIT's list, the chosen modules, and the tools."""

    upstream: str
    listed: Listing
    modules: tuple[Module, ...]
    python: Path
    toolkit: Toolkit

    @property
    def left(self) -> tuple[str, ...]:
        """The names of the modules that are left to the JIT."""
        compiled = {module.name for module in self.modules}
        return tuple(sorted({unit.module for unit in self.listed.units} - compiled))


def chosen(stores: Stores, request: WheelRequest, decisions: Sequence[Decision]) -> Chosen | None:
    """Choose the modules to compile ahead of time, None if none was requested.

    Raises:
        StackError: a module does not exist, or a compiler is missing.

    """
    if not request.ahead:
        return None
    [decision] = (candidate for candidate in decisions if layers.units(stores, candidate.layers) is not None)
    if machine.gxx() is None:
        raise StackError("--aot: g++ is not on PATH", "apt-get install g++, or name one in CXX")
    place = stores.place.cache
    python = request.order.python or _proofs(stores)
    toolkit = toolkits.find(place, stores.tell)
    stores.tell("listing the modules of upstream's JIT")
    tree = trees.folder(stores.objects(decision.upstream), decision.tree, place)
    listed = listing.of(
        tree, [expression for expression in request.ahead if aot_modules.is_expression(expression)], python, toolkit, place
    )
    return Chosen(decision.upstream, listed, aot_modules.modules(listed, request.ahead), python, toolkit)


def _proofs(stores: Stores) -> Path:
    """Return the interpreter of the proofs' environment, which has everything that the upstream's code imports."""
    if not any(path.endswith(".py") for series in stores.stack.series for path in series.proves):
        raise StackError(
            "--aot compiles in a proof's environment, but no series names a proof", "name an interpreter: --python FILE"
        )
    return series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)


def build(stores: Stores, request: WheelRequest, decisions: Sequence[Decision], out: Path) -> Iterator[Built | Library]:
    """Build the wheels into a folder, one after the other; for CMake targets, install their files there.

    Raises:
        StackError: a wheel cannot be made in this mode or on this machine, or cannot be written.

    """
    for decision in decisions:
        _check(decision)
    modules = chosen(stores, request, decisions)
    out.mkdir(parents=True, exist_ok=True)
    for decision in decisions:
        pin = stores.stack.pins.get(decision.upstream)
        if decision.plan is not None and decision.plan.order.targets:
            yield from _libraries(stores, decision, pin, out)
        elif decision.plan is not None:
            yield _compiled(stores, decision, pin, decision.plan, out)
        elif decision.mode is Mode.SOURCE:
            yield _from_source(stores, decision, pin, out)
            if modules is not None and modules.upstream == decision.upstream:
                yield _ahead(stores, modules, decision, pin, out)
        else:
            yield from _overlays(stores, request, decision, pin, out)


def _check(decision: Decision) -> None:
    """Refuse early what cannot be built."""
    if decision.plan is not None and decision.plan.lacking:
        raise StackError(f"{decision.upstream} cannot be built on this machine: {'; '.join(decision.plan.lacking)}")
    if decision.mode is Mode.SOURCE and decision.plan is None and rules_of(decision.upstream).plain is None:
        raise StackError(
            f"{decision.upstream} cannot be built from source: {decision.why}, and no installed plug-in knows its build",
            "see docs/plug-ins.md",
        )


def _version(stores: Stores, pin: Pin, *marks: str) -> Version:
    return version(stores.stack, pin, *marks)


def _overlays(stores: Stores, request: WheelRequest, decision: Decision, pin: Pin, out: Path) -> Iterator[Built]:
    own = published(pin).package
    chosen = dict(request.packages).get(decision.upstream) or own
    objects = stores.objects(decision.upstream)
    files = {path: _patched(objects, was, now) for path, was, now in decision.differences}
    edits = rules_of(decision.upstream).edits.get(canonicalize_name(chosen), Edits())
    plan = OverlayPlan(own, _version(stores, pin, flavour(pin, chosen)), files, edits)
    for candidate in _candidates(pin, chosen, request):
        yield _overlaid(stores, decision, plan, _base(stores, chosen, candidate), out)


def _patched(objects: Objects, was: Entry | None, now: Entry | None) -> Patched:
    return Patched(was.id if was is not None else None, objects.read(now.id) if now is not None else None)


def _candidates(pin: Pin, name: str, request: WheelRequest) -> tuple[Candidate, ...]:
    """Return the published wheels that the request selects.

    Raises:
        StackError: there is no wheel for one of the platforms.

    """
    known = registry.wheels(name, published(pin).version)
    if request.python is not None:
        known = tuple(
            candidate
            for candidate in known
            if request.python in {tag.interpreter for tag in parse_wheel_filename(candidate.filename)[3]}
        )
    chosen: dict[str, Candidate] = {}
    for wanted in request.platforms or ("",):
        fitting = [candidate for candidate in known if wanted in candidate.filename.rpartition("-")[2].removesuffix(".whl")]
        if not fitting:
            names = ", ".join(candidate.filename for candidate in known) or "none for that Python"
            raise StackError(
                f"{name} {published(pin).version} has no wheel for {wanted or request.python}", f"published: {names}"
            )
        chosen |= {candidate.filename: candidate for candidate in fitting}
    return tuple(chosen.values())


def _base(stores: Stores, name: str, candidate: Candidate) -> Base:
    """Return the published wheel in the cache, downloading it if it is missing or damaged."""
    folder = cache.wheels(stores.place.cache, canonicalize_name(name))
    folder.mkdir(parents=True, exist_ok=True)

    path = registry.download(candidate, folder, lambda done, total: stores.tell(f"fetching {candidate.filename}", done, total))
    return overlay.published(path, candidate.sha256 or cache.hash_of(path))


def _overlaid(stores: Stores, decision: Decision, plan: OverlayPlan, base: Base, out: Path) -> Built:
    stores.tell(f"patching {counted(len(plan.files), 'file')} of {base.path.name}")
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
    """Build a wheel with the upstream's own backend, without a compiler."""
    recipe = rules_of(decision.upstream).plain
    assert recipe is not None
    named = _version(stores, pin, BUILT)
    made = _made(
        decision, published(pin).package, named, (f"{recipe.version_file} has the version {named}",), source.tool_versions()
    )
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


def _compiled(stores: Stores, decision: Decision, pin: Pin, plan: native.CompilePlan, out: Path) -> Built:
    """Build a wheel with the upstream's own backend and compilers."""
    python = _fitting(stores, decision, plan)
    named = _version(stores, pin, plan.flavour, BUILT)
    tools = native.tool_versions(plan, python)
    made = replace(
        _made(decision, published(pin).package, named, (f"compiled for {plan.target}",), tools), environment=plan.decided
    )

    def built(place: Path) -> Path:
        stores.tell(f"building {made.name} {named}")
        work = compiled.place(stores.place.cache, decision.upstream, named.public, plan, python)
        return compiled.wheel(plan, _carried(stores, decision), python, work, place)

    build_key = f"{sys.version_info[:2]} {platform.machine()} {plan.target} {build_env.contents(os.environ)}"
    return _kept(stores, made, build_key, _told(made, named, built), out)


def _libraries(stores: Stores, decision: Decision, pin: Pin, out: Path) -> Iterator[Library]:
    """Build CMake targets, and yield the files that they install."""
    plan = decision.plan
    assert plan is not None
    python = _fitting(stores, decision, plan)
    work = compiled.place(stores.place.cache, decision.upstream, _version(stores, pin).public, plan, python)
    stores.tell("configuring")
    installed = compiled.targets(plan, _carried(stores, decision), python, work, out)
    yield from (Library(decision.upstream, path, cache.hash_of(path)) for path in installed)


def _carried(stores: Stores, decision: Decision) -> Carried:
    place = stores.place
    return Carried(stores.objects(decision.upstream), decision.tree, place.cache, place.progress or (lambda *_: None))


def _ahead(stores: Stores, chosen_modules: Chosen, decision: Decision, pin: Pin, out: Path) -> Built:
    """Build the wheel of modules that are compiled ahead of time."""
    place, toolkit, script = stores.place.cache, chosen_modules.toolkit, chosen_modules.listed.script
    named = _version(stores, pin, BUILT)
    edited = tuple(f"{module.name} is compiled for {listing.SASS_ARCHITECTURE}" for module in chosen_modules.modules)
    tools = {"nvcc": toolkit.version, "g++": str(machine.gxx())}
    made = replace(
        _made(decision, aot_modules.package(script), named, edited, tools),
        environment=build_env.deciding(os.environ, rules_of(decision.upstream)),
    )
    filename = f"{overlay.stem(made.name, named)}-{aot_modules.tag()}.whl"

    def written(folder: Path, inside: Mapping[str, bytes]) -> Path:
        with_ = hashlib.sha256(json.dumps([made.tools, made.environment], sort_keys=True).encode()).hexdigest()[:8]
        work = place / "wheels" / "building" / f"{decision.upstream}-{decision.tree[:16]}-{toolkit.version}-{with_}"
        with cache.lock(work, lambda: stores.tell("waiting for another build")):
            built = aot_modules.compiled(
                chosen_modules.listed, chosen_modules.modules, chosen_modules.python, toolkit, work, stores.place.progress
            )
        packing.write(
            folder / filename,
            aot_modules.files(script, built, named),
            aot_modules.about(script, named, published(pin).package),
            inside,
        )
        return folder / filename

    return _kept(stores, made, filename, written, out)


def _fitting(stores: Stores, decision: Decision, plan: native.CompilePlan) -> Path:
    """Return the interpreter for a build, after checking that its environment is complete."""
    python = compiled.interpreter(plan, stores.place.cache, stores.tell)
    lacking = native.lacks(plan, python)
    if lacking:
        raise StackError(f"{decision.upstream} cannot be built on this machine: {'; '.join(lacking)}")
    return python


def _made(decision: Decision, name: str, named: Version, edited: tuple[str, ...], tools: Mapping[str, str]) -> Made:
    """Describe a wheel that is made from a tree by some tools."""
    tool_list = " ".join(f"{tool}=={tool_version}" for tool, tool_version in sorted(tools.items()))
    base = Sha256(hashlib.sha256(f"{decision.tree} {tool_list}".encode()).hexdigest())
    tree = f"git tree {decision.tree}"
    return Made(decision.upstream, name, str(named), decision.mode.value, tree, base, edited, tools=tools)


def _told(made: Made, named: Version, built: Callable[[Path], Path]) -> Callable[[Path, Mapping[str, bytes]], Path]:
    """Return a function that builds a wheel and copies it with its provenance added."""

    def written(folder: Path, inside: Mapping[str, bytes]) -> Path:
        with tempfile.TemporaryDirectory(prefix="stack-build-", dir=folder) as place:
            plain = built(Path(place))
            base = overlay.published(plain, cache.hash_of(plain))
            if base.version != named:
                raise StackError(f"the upstream's build made {plain.name}, which is not {named}", "see its backend")
            prepared = overlay.prepare(base, OverlayPlan(made.name, named, {}))
            overlay.build(prepared, folder / prepared.filename, inside)
            return folder / prepared.filename

    return written


def _kept(stores: Stores, made: Made, build_key: str, written: Callable[[Path, Mapping[str, bytes]], Path], out: Path) -> Built:
    """Return a wheel that was built before or build it now, and put it into the output folder."""
    inside = _inside(stores.stack, made)
    made_of = json.dumps([made.base_sha256, build_key, dict(made.environment)]).encode() + b"".join(inside.values())
    kept = keeping.kept(stores.place.cache, made_of, lambda folder: written(folder, inside))
    target = keeping.put(kept, out)
    statement = provenance.provenance(stores.stack, made, target.name, kept.sha256)
    cache.put(out / f"{target.name}{STATEMENT}", statement)
    return Built(made.upstream, target, kept.sha256, Mode(made.mode), made.edited, made.left_out, kept.reused)


def _inside(stack: Stack, made: Made) -> dict[str, bytes]:
    """Return the files that describe a wheel in its dist-info folder."""
    return {
        provenance.file_name(stack): provenance.encoded(provenance.description(stack, made)),
        "sboms/stack.cdx.json": provenance.bill_of_materials(stack, made),
    }


def as_json(built: Sequence[Built]) -> list[dict[str, Any]]:
    """Convert wheels to their form in `--json`."""
    return [
        {
            "upstream": wheel.upstream,
            "file": str(wheel.path),
            "sha256": wheel.sha256,
            "mode": wheel.mode.value,
            "edited": list(wheel.edited),
            "left_out": list(wheel.left_out),
            "reused": wheel.reused,
        }
        for wheel in built
    ]
