# SPDX-License-Identifier: Apache-2.0
"""Select the units to compile: those that a patch names in its series.toml, the first that it touches, or all touched."""

import fnmatch
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.carry.upstream_stores import Stores
from stack.model.ids import TreeId
from stack.model.series import Compiles, PatchRef
from stack.proof import trees
from stack.proof.compiling import instantiations, listing, touched
from stack.proof.compiling.instantiations import Instantiation
from stack.proof.compiling.layers import Layer, Layers
from stack.proof.compiling.listing import Listing, Unit
from stack.proof.compiling.toolkit import Toolkit


@dataclass(frozen=True, slots=True)
class Wanted:
    """A unit to compile, whole or cut down to one instantiation, and its required instructions."""

    unit: Unit
    instantiation: Instantiation | None
    patches: tuple[PatchRef, ...] = ()
    sass: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Absent:
    """A named unit that does not exist, or (`touched` false) that the patch naming it does not touch."""

    unit: str
    patches: tuple[PatchRef, ...]
    problem: str
    touched: bool = True


class Selection:
    """The units of one upstream's tree and its vendored upstreams: with all patches, or without any (`pristine`).

    `everything`: select all units that patches touch, whole, in addition to those that they name. `architecture`: their GPU.
    """

    def __init__(
        self,
        stores: Stores,
        layers: Layers,
        named: Sequence[Compiles],
        python: Path,
        toolkit: Toolkit,
        *,
        everything: bool,
        pristine: bool,
        architecture: str = listing.SASS_ARCHITECTURE,
    ) -> None:
        self._stores = stores
        self._upstream = layers.upstream
        self._expressions = sorted({unit.makes for unit in named if unit.makes})
        self._python = python
        self._toolkit = toolkit
        self._everything = everything
        self._pristine = pristine
        self._architecture = architecture
        self.listing = self._list(layers.base if pristine else layers.tip)
        self._here = {unit.name: unit for unit in self.listing.units}

    def of_patch(self, layer: Layer, named: Sequence[Compiles]) -> Iterator[Wanted | Absent]:
        """Yield the units to compile for a patch that names these units."""
        self._stores.tell(f"what {layer.ref.path} touches")
        for description in named:
            judged = (self._if_touched(unit, layer) for unit in self._meant(description, (layer.ref,)))
            # A pattern may also match units that only later patches add: take one that this patch touches.
            yield from judged if self._everything else _first(judged)
        if self._everything:
            yield from (Wanted(unit, None, (layer.ref,)) for unit in self._touched(layer, self.listing))
        elif not named:
            first = next((unit for unit in self._touched(layer, self.listing) if unit.is_cuda), None)
            if first is not None:
                yield Wanted(first, next(iter(_instantiations(first)), None), (layer.ref,))

    def by_name(self, named: Compiles) -> Iterable[Wanted | Absent]:
        """Return the units that a name matches: only the first, unless `everything` is set."""
        return self._meant(named, ()) if self._everything else _first(self._meant(named, ()))

    def _meant(self, named: Compiles, patches: tuple[PatchRef, ...]) -> Iterator[Wanted | Absent]:
        """Yield all units that a name matches, each instantiation separately."""
        made = self.listing.made.get(named.makes, ()) if named.makes else None
        if isinstance(made, str):
            yield Absent(named.unit, patches, f"{named.makes} fails: {made}")
            return
        matching = [unit for unit in self.listing.units if _matches(unit, named.unit) and (made is None or unit.module in made)]
        wanted = [
            Wanted(unit, kept, patches, named.sass) for unit in matching for kept in self._kept(unit, named.instantiation)
        ]
        if not matching:
            near = ", ".join(self._near(named.unit))
            yield Absent(named.unit, patches, "there is no such unit" + (f"; there is {near}" if near else ""))
        elif not wanted:
            yield Absent(named.unit, patches, f"there is no instantiation with {named.instantiation!r} in it")
        yield from wanted

    def _kept(self, unit: Unit, words: str | None) -> Iterable[Instantiation | None]:
        """Return the parts of a unit to compile: instantiations with these words, else the first one, or None for the whole unit."""
        available = _instantiations(unit)
        if words is not None:
            return [instantiation for instantiation in available if " ".join(words.split()) in instantiation.text]
        return [None] if self._everything or not available else available[:1]

    def _if_touched(self, found: Wanted | Absent, layer: Layer) -> Wanted | Absent:
        if isinstance(found, Absent) or self._pristine:
            return found
        alone = replace(self.listing, units=(found.unit,))
        if any(self._touched(layer, alone)):
            return found
        return Absent(
            found.unit.name, found.patches, "the patch does not touch it: name another unit in series.toml", touched=False
        )

    def _touched(self, layer: Layer, within: Listing) -> Iterator[Unit]:
        """Yield each unit of a listing that a patch touches, once."""
        names = {unit.name for unit in within.units}
        seen: set[str] = set()
        if not all(touched.is_compiled(path) for path in layer.paths):
            # Other files, such as Python code or a template, may generate the sources.
            for unit in touched.by_flags(self._list(layer.before), self._list(layer.after)):
                if unit.name in names:
                    seen.add(unit.name)
                    yield self._here[unit.name]
        yield from (unit for unit in touched.by_files(within, layer.paths, self._toolkit) if unit.name not in seen)

    def _list(self, tree: TreeId) -> Listing:
        cache = self._stores.place.cache
        folder = trees.folder(self._stores.objects(self._upstream), tree, cache)
        self._stores.tell("asking upstream's JIT for its units")
        return listing.for_gpu(folder, self._expressions, self._python, self._toolkit, cache, self._architecture)

    def _near(self, pattern: str) -> list[str]:
        """Suggest units of the pattern's module, else modules with a similar name."""
        module = pattern.partition("/")[0]
        inside = [unit.name for unit in self.listing.units if fnmatch.fnmatchcase(unit.module, module)]
        return (
            inside[:3] or sorted({f"{unit.module}/*" for unit in self.listing.units if unit.module.startswith(module[:4])})[:3]
        )


def _first(units: Iterable[Wanted | Absent]) -> list[Wanted | Absent]:
    """Return the first unit that can be compiled, else the first absent one."""
    absent: list[Wanted | Absent] = []
    for unit in units:
        if isinstance(unit, Wanted):
            return [unit]
        absent.append(unit)
    return absent[:1]


def _matches(unit: Unit, pattern: str) -> bool:
    return fnmatch.fnmatchcase(unit.name, pattern)


def _instantiations(unit: Unit) -> tuple[Instantiation, ...]:
    return instantiations.of(unit.source.read_text(encoding="utf-8", errors="replace"))
