# SPDX-License-Identifier: Apache-2.0
"""Find which patches depend on which, and order them by series so that the final tree stays the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stack.model.diff import FileDiff, Hunk

Dependencies = list[set[int]]
"""For each patch, by its number, the earlier ones that it has to follow."""


@dataclass(slots=True)
class _Region:
    """Lines of a file that a patch wrote; with no lines, the place where it removed some."""

    start: int
    length: int
    owner: int


@dataclass(slots=True)
class _File:
    regions: list[_Region] = field(default_factory=list)
    whole: set[int] = field(default_factory=set)
    """The patches that created, removed or renamed the file, changed its mode, or changed it as binary."""
    touched: set[int] = field(default_factory=set)


def dependencies(chain: Sequence[Sequence[FileDiff]]) -> Dependencies:
    """Return what each patch of a chain depends on: the patches whose lines it changes, or stands directly beside.

    A three-way merge cannot change the order of two such patches either.
    """
    files: dict[str, _File] = {}
    result: Dependencies = []
    for number, changed in enumerate(chain):
        needed: set[int] = set()
        for diff in changed:
            for path in {name for name in (diff.old, diff.new) if name is not None}:
                needed |= files.setdefault(path, _File()).whole
            needed |= _whole(files, diff, number) if _is_whole(diff) else set()
            needed |= _lines(files[diff.path], diff.hunks, number)
        result.append(needed - {number})
    return result


def _is_whole(diff: FileDiff) -> bool:
    return diff.binary or diff.old != diff.new or diff.old_mode != diff.new_mode


def _whole(files: dict[str, _File], diff: FileDiff, number: int) -> set[int]:
    """Record a change of a whole file, and return the patches that changed it before."""
    needed: set[int] = set()
    for path in {name for name in (diff.old, diff.new) if name is not None}:
        needed |= files[path].touched
        files[path].whole.add(number)
        files[path].touched.add(number)
    if diff.old is not None and diff.new is not None and diff.old != diff.new:
        files[diff.new].regions = list(files[diff.old].regions)
    return needed


def _lines(file: _File, hunks: Sequence[Hunk], number: int) -> set[int]:
    """Record a patch's changed lines, and return the patches whose lines they touch."""
    needed: set[int] = set()
    for start, removed, added in (run for hunk in hunks for run in _runs(hunk)):
        kept: list[_Region] = []
        for region in file.regions:
            end = region.start + region.length
            if region.start <= start + removed and start <= end and region.owner != number:
                needed.add(region.owner)
            kept += _cut(region, start, removed, added)
        file.regions = [*kept, _Region(start, added, number)]
    file.touched.add(number)
    return needed


def _cut(region: _Region, start: int, removed: int, added: int) -> Iterator[_Region]:
    """Yield what is left of a region after lines were replaced: the parts above and below."""
    end = region.start + region.length
    if region.length == 0:
        if region.start < start:
            yield region
        elif region.start >= start + removed:
            yield _Region(region.start + added - removed, 0, region.owner)
        return
    if region.start < start:
        yield _Region(region.start, min(end, start) - region.start, region.owner)
    if end > start + removed:
        first = max(region.start, start + removed)
        yield _Region(first + added - removed, end - first, region.owner)


def _runs(hunk: Hunk) -> Iterator[tuple[int, int, int]]:
    """Yield each run of changed lines: its first line (from 0) in the new file, and how many lines go and come."""
    place = hunk.new_start - (1 if hunk.new_count else 0)
    removed = added = 0
    for line in (*hunk.lines, b" "):
        kind = line[:1]
        if kind == b"\\":
            continue
        if kind in (b"+", b"-"):
            removed, added = removed + (kind == b"-"), added + (kind == b"+")
            continue
        if removed or added:
            yield place, removed, added
            place, removed, added = place + added, 0, 0
        place += 1


@dataclass(frozen=True, slots=True)
class Order:
    """The patches by series.

    `series` names each patch's series, `order` lists the series, `places` the patches in their new order. `moved` are pairs of a
    patch that could not go where it was assigned, and the one that it depends on. `late` are pairs of patches of one series, of
    which the first was wanted before the second, and depends on it.
    """

    series: tuple[str, ...]
    order: tuple[str, ...]
    places: tuple[int, ...]
    moved: tuple[tuple[int, int], ...]
    late: tuple[tuple[int, int], ...] = ()

    def needs(self, needed: Dependencies) -> Mapping[str, tuple[str, ...]]:
        """Return the series that each series depends on."""
        found: dict[str, set[str]] = {name: set() for name in self.order}
        for number, others in enumerate(needed):
            found[self.series[number]] |= {self.series[other] for other in others} - {self.series[number]}
        return {name: tuple(other for other in self.order if other in found[name]) for name in self.order}


def settled(assigned: Sequence[str], needed: Dependencies, fixed: Sequence[str], wanted: Sequence[int] = ()) -> Order:
    """Order the series so that every patch follows those that it depends on.

    A patch that would have to stand before such a patch goes into that patch's series. The series in `fixed` stand first and keep
    their order. `wanted` gives the place of each patch among the others that a person wants; by default the patches keep their order.
    """
    series = list(assigned)
    places = wanted or range(len(series))
    first = sorted(range(len(series)), key=places.__getitem__)
    moved: dict[int, int] = {}
    while True:
        order = (*fixed, *_topological(series, needed, set(fixed), first))
        rank = {name: place for place, name in enumerate(order)}
        late = [(j, i) for j, others in enumerate(needed) for i in sorted(others) if rank[series[i]] > rank[series[j]]]
        if not late:
            break
        patch, other = max(late, key=lambda pair: (-pair[0], rank[series[pair[1]]]))
        series[patch] = series[other]
        moved[patch] = other
    ordered = tuple(number for name in order for number in _within([each for each in first if series[each] == name], needed))
    kept = [
        (patch, other)
        for patch, others in enumerate(needed)
        for other in sorted(others)
        if series[patch] == series[other] and places[patch] < places[other]
    ]
    return Order(tuple(series), tuple(order), ordered, tuple(sorted(moved.items())), tuple(kept))


def _within(wanted: Sequence[int], needed: Dependencies) -> Iterator[int]:
    """Yield the patches of a series in the wanted order, each after those that it depends on."""
    waiting = list(wanted)
    while waiting:
        number = next(number for number in waiting if needed[number].isdisjoint(waiting))
        waiting.remove(number)
        yield number


def _topological(series: Sequence[str], needed: Dependencies, fixed: set[str], first: Sequence[int]) -> list[str]:
    """Order the series that are not fixed: by what they depend on, then by the first of their patches in `first`."""
    waiting = [name for name in dict.fromkeys(series[number] for number in first) if name not in fixed]
    edges = {name: set[str]() for name in waiting}
    for number, others in enumerate(needed):
        if series[number] in edges:
            edges[series[number]] |= {series[other] for other in others} - {series[number], *fixed}
    order: list[str] = []
    while waiting:
        free = next((name for name in waiting if edges[name] <= set(order)), waiting[0])
        order.append(free)
        waiting.remove(free)
    return order
