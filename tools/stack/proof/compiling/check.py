# SPDX-License-Identifier: Apache-2.0
"""Compile the units that series touch for SM121 or other GPUs, and look for required instructions."""

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model.series import Compiles, PatchRef, Series
from stack.proof import series_proofs
from stack.proof.compiling import architecture as architectures
from stack.proof.compiling import compiler, instantiations, jobs, layers, listing, resources, sass, touched
from stack.proof.compiling import toolkit as toolkits
from stack.proof.compiling.instantiations import Instantiation
from stack.proof.compiling.layers import Layer, Layers
from stack.proof.compiling.resources import Kernel
from stack.proof.compiling.selection import Absent, Selection, Wanted
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places


class UnitOutcome(StrEnum):
    """The outcome of a unit."""

    COMPILES = "compiles"
    FAILS = "fails"
    LACKS = "lacks"
    UNTOUCHED = "untouched"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """A request: compile the units that patches of `series` (default: all) touch, or those that `unit` describes.

    `everything` compiles all touched units whole; otherwise only one instantiation of those that a patch names, or of the first
    touched one. `pristine` uses the upstream's own tree. `jobs` is the number of parallel compilers (default: as many as fit).
    `python` is an interpreter instead of the environment in the cache. `architectures` are the GPUs to compile for.
    """

    series: tuple[str, ...] = ()
    everything: bool = False
    pristine: bool = False
    unit: Compiles | None = None
    jobs: int | None = None
    python: Path | None = None
    architectures: tuple[str, ...] = (listing.SASS_ARCHITECTURE,)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a unit for one GPU: seconds, peak memory in bytes, and counts of the required and of all instructions.

    `kernels` holds each kernel's resources. `sources` lists the tree's files that it was compiled from, if it compiles.
    """

    unit: str
    patches: tuple[PatchRef, ...]
    state: UnitOutcome
    problem: str = ""
    instantiation: str | None = None
    seconds: float = 0.0
    peak: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    instructions: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    sources: tuple[str, ...] = ()
    architecture: str = listing.SASS_ARCHITECTURE


@dataclass(frozen=True, slots=True)
class Report:
    """All results; also `idle` patches that touch no unit, `uncovered` compiled files, and units that could not be listed.

    `compiler` is empty if no upstream has units.
    """

    compiler: str
    results: tuple[Result, ...]
    idle: tuple[PatchRef, ...]
    uncovered: tuple[tuple[PatchRef, str], ...]
    unlisted: Mapping[str, str]

    @property
    def sound(self) -> bool:
        """Whether all units compile and contain their required instructions."""
        return all(each.state is UnitOutcome.COMPILES for each in self.results)


def check(stores: Stores, asked: CompileRequest) -> Report:
    """Find the units, compile them, and inspect their instructions.

    Raises:
        StackError: A series is unknown, a source or the compiler is not available, or no upstream has a known JIT for `unit`.

    """
    listing.check_folder(stores.place.cache)  # fail before downloading a compiler
    refs = () if asked.unit else tuple(ref for series in _series(stores, asked) for ref in series.patches)
    toolkit: Toolkit | None = None
    results: list[Result] = []
    uncovered: list[tuple[PatchRef, str]] = []
    unlisted: dict[str, str] = {}
    for pin in stores.stack.pins:
        names = {pin.upstream, *(vendored.upstream for vendored in stores.stack.pins.vendored_in(pin.upstream))}
        if pin.within is not None or not (asked.unit or any(ref.upstream in names for ref in refs)):
            continue
        layered = layers.of(stores, pin)
        mine = [layer for layer in layered.patches if layer.ref in refs]
        if layers.units(stores, layered) is not None:
            toolkit = toolkit or _toolkit(stores, asked)
            for architecture in dict.fromkeys(asked.architectures):
                selection = _selection(stores, asked, layered, toolkit, architecture)
                results += _results(stores, asked, toolkit, selection, mine, architecture)
                unlisted |= selection.listing.unlisted
        else:
            uncovered += [(layer.ref, path) for layer in mine for path in layer.paths if touched.is_built(path)]
    if asked.unit and not results:
        raise StackError("no upstream of this stack has a JIT that an installed plug-in knows", "see docs/plug-ins.md")
    busy = {ref for each in results for ref in each.patches} | {ref for ref, _ in uncovered}
    idle = tuple(ref for ref in refs if ref not in busy)
    return Report(f"nvcc {toolkit.version}" if toolkit else "", tuple(results), idle, tuple(uncovered), unlisted)


def _toolkit(stores: Stores, asked: CompileRequest) -> Toolkit:
    toolkit = toolkits.find(stores.place.cache, stores.tell)
    architectures.check(toolkit, asked.architectures)
    return toolkit


def _series(stores: Stores, asked: CompileRequest) -> list[Series]:
    return [stores.stack.get(name) for name in asked.series] or list(stores.stack.series)


def _named(stores: Stores, asked: CompileRequest) -> list[Compiles]:
    return [asked.unit] if asked.unit else [named for series in _series(stores, asked) for named in series.compiles]


def _selection(stores: Stores, asked: CompileRequest, layered: Layers, toolkit: Toolkit, architecture: str) -> Selection:
    python = asked.python or series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)
    named = _named(stores, asked)
    return Selection(
        stores,
        layered,
        named,
        python,
        toolkit,
        everything=asked.everything,
        pristine=asked.pristine,
        architecture=architecture,
    )


def _results(
    stores: Stores,
    asked: CompileRequest,
    toolkit: Toolkit,
    selection: Selection,
    patches: Sequence[Layer],
    architecture: str,
) -> Iterator[Result]:
    """Yield the result of each unit, absent units first."""
    named = _named(stores, asked)
    selected = list(selection.by_name(asked.unit)) if asked.unit else []
    for layer in patches:
        selected += selection.of_patch(layer, [unit for unit in named if unit.patch == layer.ref])
    for absent in (unit for unit in selected if isinstance(unit, Absent)):
        state = UnitOutcome.MISSING if absent.touched else UnitOutcome.UNTOUCHED
        yield Result(absent.unit, absent.patches, state, absent.problem, architecture=architecture)
    wanted = _merged([unit for unit in selected if isinstance(unit, Wanted)])
    pool = ThreadPoolExecutor(asked.jobs or jobs.that_fit())
    try:
        running = [
            pool.submit(_compiled, unit, toolkit, selection.listing.tree, stores.place.cache, architecture) for unit in wanted
        ]
        for number, (unit, future) in enumerate(zip(wanted, running, strict=True), 1):
            stores.tell(f"compiling {number} of {len(wanted)}: {unit.unit.source.name}")
            yield future.result()
    finally:
        # Ctrl-C reaches the running compilers, too; do not start those still queued.
        pool.shutdown(cancel_futures=True)


def _merged(wanted: Sequence[Wanted]) -> list[Wanted]:
    """Merge equal units of several patches, so that each is compiled once."""
    merged: dict[tuple[str, Instantiation | None], Wanted] = {}
    for unit in wanted:
        key = (unit.unit.name, unit.instantiation)
        before = merged.get(key, unit)
        patches, names = (*before.patches, *unit.patches), (*before.sass, *unit.sass)
        merged[key] = replace(unit, patches=tuple(dict.fromkeys(patches)), sass=tuple(dict.fromkeys(names)))
    return list(merged.values())


def _compiled(one: Wanted, toolkit: Toolkit, tree: Path, cache: Path, architecture: str) -> Result:
    unit, kept = one.unit, one.instantiation
    source = unit.source if kept is None else cut(unit.source, kept, cache)
    with tempfile.TemporaryDirectory(prefix="stack-compile-") as work:
        built = Path(work) / "built.o"
        run = compiler.compile_unit(unit, source, built, toolkit, tree)
        looked_at = unit.is_cuda and not run.error
        found = sass.instructions(toolkit, built, architecture) if looked_at else {}
        kernels = resources.kernels(toolkit, built, architecture) if looked_at else ()
    named = {} if run.error else {name: sass.number(found, name) for name in one.sass}
    lacking = [name for name, times in named.items() if not times]
    state = UnitOutcome.FAILS if run.error else UnitOutcome.LACKS if lacking else UnitOutcome.COMPILES
    problem = f"no {' and no '.join(lacking)} in its code for {architecture}" if state is UnitOutcome.LACKS else run.error
    text = kept.text if kept is not None else None
    read = {path.relative_to(tree).as_posix() for path in (*run.sources, unit.source) if path.is_relative_to(tree)}
    sources = tuple(sorted(read)) if not run.error else ()
    return Result(
        unit.name,
        one.patches,
        state,
        problem,
        text,
        run.seconds,
        run.peak,
        named,
        found,
        kernels,
        sources,
        architecture,
    )


def cut(source: Path, kept: Instantiation, cache: Path) -> Path:
    """Write the source with one instantiation to a path derived from its text, so that ccache recognizes it in every tree."""
    text = instantiations.only(source.read_text(encoding="utf-8"), kept)
    place = cache / "compiling" / "cut" / hashlib.sha256(text.encode()).hexdigest()[:16] / source.name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        places.put(place, text.encode())
    return place
