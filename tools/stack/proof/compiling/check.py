# SPDX-License-Identifier: Apache-2.0
"""Compiling what series touch for SM121, and looking for the instructions that have to come of it."""

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
from stack.proof.compiling import compiler, instantiations, jobs, layers, listing, resources, sass, touched
from stack.proof.compiling import toolkit as toolkits
from stack.proof.compiling.instantiations import Instantiation
from stack.proof.compiling.layers import Layer, Layers
from stack.proof.compiling.resources import Kernel
from stack.proof.compiling.selection import Absent, Selection, Wanted
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places


class State(StrEnum):
    """What came of a unit."""

    COMPILES = "compiles"
    FAILS = "fails"
    LACKS = "lacks"
    UNTOUCHED = "untouched"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Asked:
    """What to compile: what the patches of these series touch (of all, unless named), or the unit that `unit` describes.

    `everything`: all units that they touch, whole; else one instantiation of what a patch names, or of the first that it touches.
    `pristine`: in upstream's own tree. `jobs`: compilers beside each other, else as many as fit. `python`: an interpreter in place
    of the environment in the cache. `architecture`: for which GPU, of those that a unit is for.
    """

    series: tuple[str, ...] = ()
    everything: bool = False
    pristine: bool = False
    unit: Compiles | None = None
    jobs: int | None = None
    python: Path | None = None
    architecture: str = listing.SASS_ARCHITECTURE


@dataclass(frozen=True, slots=True)
class Result:
    """A unit and what came of it: seconds, peak memory in bytes, how often each named instruction is there, and all of them.

    `kernels`: what each takes. `sources`: the files of the tree that it was compiled from, where it compiles.
    """

    unit: str
    patches: tuple[PatchRef, ...]
    state: State
    problem: str = ""
    instantiation: str | None = None
    seconds: float = 0.0
    peak: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    instructions: Mapping[str, int] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All results; patches that touch no unit, files of patches that are compiled and not covered here, and units not listed."""

    compiler: str
    results: tuple[Result, ...]
    idle: tuple[PatchRef, ...]
    uncovered: tuple[tuple[PatchRef, str], ...]
    unlisted: Mapping[str, str]

    @property
    def sound(self) -> bool:
        """Whether all units compile and have what they have to have."""
        return all(one.state is State.COMPILES for one in self.results)


def check(stores: Stores, asked: Asked) -> Report:
    """Find the units, compile them, look at their instructions.

    Raises:
        StackError: no such series, a source or the compiler cannot be had, or a unit is asked for where no JIT is known.

    """
    listing.check_folder(stores.place.cache)  # before a compiler is downloaded
    refs = () if asked.unit else tuple(ref for one in _series(stores, asked) for ref in one.patches)
    toolkit = toolkits.find(stores.place.cache, stores.tell)
    results: list[Result] = []
    uncovered: list[tuple[PatchRef, str]] = []
    unlisted: dict[str, str] = {}
    for pin in stores.stack.pins:
        names = {pin.upstream, *(one.upstream for one in stores.stack.pins.vendored_in(pin.upstream))}
        if pin.within is not None or not (asked.unit or any(ref.upstream in names for ref in refs)):
            continue
        layered = layers.of(stores, pin)
        mine = [layer for layer in layered.patches if layer.ref in refs]
        if layers.has_units(stores, layered):
            selection = _selection(stores, asked, layered, toolkit)
            results += _results(stores, asked, toolkit, selection, mine)
            unlisted |= selection.listing.unlisted
        else:
            uncovered += [(layer.ref, path) for layer in mine for path in layer.paths if touched.is_built(path)]
    if asked.unit and not results:
        raise StackError("no upstream of this stack has a JIT that is known here", "FlashInfer's is")
    busy = {ref for one in results for ref in one.patches} | {ref for ref, _ in uncovered}
    idle = tuple(ref for ref in refs if ref not in busy)
    return Report(f"nvcc {toolkit.version}", tuple(results), idle, tuple(uncovered), unlisted)


def _series(stores: Stores, asked: Asked) -> list[Series]:
    return [stores.stack.get(name) for name in asked.series] or list(stores.stack.series)


def _named(stores: Stores, asked: Asked) -> list[Compiles]:
    return [asked.unit] if asked.unit else [named for one in _series(stores, asked) for named in one.compiles]


def _selection(stores: Stores, asked: Asked, layered: Layers, toolkit: Toolkit) -> Selection:
    python = asked.python or series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0], stores.tell)
    named = _named(stores, asked)
    return Selection(stores, layered, named, python, toolkit, everything=asked.everything, pristine=asked.pristine)


def _results(
    stores: Stores, asked: Asked, toolkit: Toolkit, selection: Selection, patches: Sequence[Layer]
) -> Iterator[Result]:
    """What came of each unit; what is not there comes first."""
    named = _named(stores, asked)
    found = list(selection.by_name(asked.unit)) if asked.unit else []
    for layer in patches:
        found += selection.of_patch(layer, [one for one in named if one.patch == layer.ref])
    for absent in (one for one in found if isinstance(one, Absent)):
        state = State.MISSING if absent.touched else State.UNTOUCHED
        yield Result(absent.unit, absent.patches, state, absent.problem)
    wanted = _merged([one for one in found if isinstance(one, Wanted)])
    pool = ThreadPoolExecutor(asked.jobs or jobs.that_fit())
    try:
        running = [
            pool.submit(_compiled, one, toolkit, selection.listing.tree, stores.place.cache, asked.architecture)
            for one in wanted
        ]
        for number, (one, each) in enumerate(zip(wanted, running, strict=True), 1):
            stores.tell(f"compiling {number} of {len(wanted)}: {one.unit.source.name}")
            yield each.result()
    finally:
        # An interrupt reaches the compilers, too; those that wait their turn must not start after it.
        pool.shutdown(cancel_futures=True)


def _merged(wanted: Sequence[Wanted]) -> list[Wanted]:
    """What several patches want is compiled once."""
    merged: dict[tuple[str, Instantiation | None], Wanted] = {}
    for one in wanted:
        key = (one.unit.name, one.instantiation)
        before = merged.get(key, one)
        patches, names = (*before.patches, *one.patches), (*before.sass, *one.sass)
        merged[key] = replace(one, patches=tuple(dict.fromkeys(patches)), sass=tuple(dict.fromkeys(names)))
    return list(merged.values())


def _compiled(one: Wanted, toolkit: Toolkit, tree: Path, cache: Path, architecture: str) -> Result:
    unit, kept = one.unit.compiled_for(architecture), one.instantiation
    source = unit.source if kept is None else cut(unit.source, kept, cache)
    with tempfile.TemporaryDirectory(prefix="stack-compile-") as work:
        built = Path(work) / "built.o"
        run = compiler.compile_unit(unit, source, built, toolkit, tree)
        looked_at = unit.is_cuda and not run.error
        found = sass.instructions(toolkit, built, architecture) if looked_at else {}
        kernels = resources.kernels(toolkit, built, architecture) if looked_at else ()
    named = {} if run.error else {name: sass.number(found, name) for name in one.sass}
    lacking = [name for name, times in named.items() if not times]
    state = State.FAILS if run.error else State.LACKS if lacking else State.COMPILES
    problem = f"no {' and no '.join(lacking)} in its code for {architecture}" if state is State.LACKS else run.error
    text = kept.text if kept is not None else None
    read = {path.relative_to(tree).as_posix() for path in (*run.sources, unit.source) if path.is_relative_to(tree)}
    sources = tuple(sorted(read)) if not run.error else ()
    return Result(unit.name, one.patches, state, problem, text, run.seconds, run.peak, named, found, kernels, sources)


def cut(source: Path, kept: Instantiation, cache: Path) -> Path:
    """The source with one instantiation, in a place that its text names: ccache knows it again, in whatever tree it is."""
    text = instantiations.only(source.read_text(encoding="utf-8"), kept)
    place = cache / "compiling" / "cut" / hashlib.sha256(text.encode()).hexdigest()[:16] / source.name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        places.put(place, text.encode())
    return place
