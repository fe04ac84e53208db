# SPDX-License-Identifier: Apache-2.0
"""Find the commits or releases that may have brought a patch's change upstream, under whatever name.

A patch is held against the lines that every step of the way added and removed, file by file (see `history`): the share of its
lines that a step has, too, is the score. Lines that many steps share (a licence header, `return None`) say nothing and are left
out. What is found are candidates: whether each part of the patch is in place after them is judged by its place (see `presence`).
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stack.carry import history, reflow
from stack.carry.history import Held, Index, Line, Step
from stack.model import patch as patches
from stack.model.diff import FileDiff
from stack.model.patch import Patch
from stack.store.objects import Objects

PARTLY = 0.5
"""Steps that have less of a patch are not asked whether it landed with them."""
FEW = 3
"""Fewer telling lines than this have to be in one step, all of them: otherwise they prove nothing."""
MORE = 0.2
"""A further commit counts where it has at least this share of the patch that the ones before lack: it landed in parts."""
_PARTS = 3
_REFLOWED = 0.3
"""From here on the lines that lack are looked for with other line breaks."""

_SUBJECT_NUMBER = re.compile(r"\(#(\d+)\)\s*$")
_PULL_ADDRESS = re.compile(r"https?://\S+/(?:pull|merge_requests)/(\d+)\b")
_SAYS_WHERE = frozenset({"upstream", "upstream-pr", "upstream-pull", "pull-request", "pr", "forwarded", "submitted"})

Place = tuple[str, Line]
"""A line of a patch, in the file that has it."""
Wanted = Mapping[Place, int]
"""How often a patch has a line, by the file that has it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The steps that have most of a patch (the one with most of it first), how much they have, and the lines that none has."""

    steps: tuple[Step, ...]
    score: float
    missing: frozenset[Place] = frozenset()
    pull: int | None = None

    @property
    def last(self) -> Step:
        """The step after which all of it is there."""
        return max(self.steps)


def recorded(patch: Patch) -> frozenset[int]:
    """The pull requests that a patch names as its own: `(#12)` at the end of its subject, or an address in a trailer."""
    found = set(_SUBJECT_NUMBER.findall(patch.subject))
    for key, value in patches.trailers(patch.message):
        if key.lower() in _SAYS_WHERE:
            found |= set(_PULL_ADDRESS.findall(value))
    return frozenset(map(int, found))


def pull_number(address: str) -> int | None:
    """The number of a pull request, from its address."""
    found = _PULL_ADDRESS.search(address)
    return int(found[1]) if found else None


def search(
    index: Index,
    files: Sequence[FileDiff],
    pulls: Collection[int] = (),
    *,
    objects: Objects | None = None,
    without: Collection[int] = (),
) -> Found | None:
    """The steps that may have brought a patch; None where nothing on the way has half of it.

    Args:
        index: the way.
        files: the patch's change.
        pulls: the numbers of the patch's own pull requests. A fork may count its own: a step with such a number has to have
            half of the patch like any other.
        objects: the repository; without, a line is only recognised where upstream breaks it at the same places.
        without: the numbers of the steps that are not asked for.

    """
    same = next((step for step in index.same_patch(files) if step.number not in without), None)
    if same is not None:
        return Found((same,), 1.0)
    own = wanted(files)
    holders = index.holders({turned for _, (side, number) in own for turned in ((side, number), (-side, number))})
    telling = {place: count for place, count in own.items() if place[1] in holders}
    for number in sorted(pulls):
        step = index.pull(number)
        if step is not None and step.number not in without:
            named = _in_pull(telling, holders, step, number)
            if named.score >= PARTLY:
                return named
    found = _in_steps(index, telling, _hits(_Homes(index, files), telling, holders, without))
    if found is None:
        return None
    if sum(telling.values()) < FEW:
        return found if not found.missing and len(found.steps) == 1 else None
    if objects is not None and _REFLOWED <= found.score < PARTLY:
        found = _reflowed(objects, index, files, telling, found)
    return found if found.score >= PARTLY else None


def reversal(index: Index, files: Sequence[FileDiff], brought: Step) -> Step | None:
    """The step that removed most of what another one had brought; None where none did."""
    found = search(index, [_reversed(file) for file in files], without=range(brought.number + 1))
    return found.last if found is not None else None


def _reversed(file: FileDiff) -> FileDiff:
    hunks = tuple(
        replace(
            hunk,
            old_start=hunk.new_start,
            old_count=hunk.new_count,
            new_start=hunk.old_start,
            new_count=hunk.old_count,
            lines=tuple(_turned(hunk.lines)),
        )
        for hunk in file.hunks
    )
    return replace(
        file,
        old=file.new,
        new=file.old,
        old_id=file.new_id,
        new_id=file.old_id,
        old_mode=file.new_mode,
        new_mode=file.old_mode,
        hunks=hunks,
    )


def _turned(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Added lines removed and removed ones added; what is removed comes first, as git writes it."""
    for changed, group in itertools.groupby(lines, lambda line: line[:1] in (b"+", b"-")):
        if not changed:
            yield from group
            continue
        together = list(group)
        yield from (b"-" + line[1:] for line in together if line[:1] == b"+")
        yield from (b"+" + line[1:] for line in together if line[:1] == b"-")


def wanted(files: Iterable[FileDiff]) -> Wanted:
    """The telling lines of a patch. What a renamed file loses is lost under its old name."""
    return Counter((_home(file, line), line) for file in files for line in history.lines(file))


def _home(file: FileDiff, line: Line) -> str:
    return file.old if line[0] < 0 and file.old else file.path


@dataclass(frozen=True, slots=True)
class _Homes:
    """In which other files of upstream a patch's lines may have landed: their own file has to be lost there.

    Anywhere else the same lines belong to a sibling of the patch: the same change, for another kernel.
    """

    index: Index
    files: Sequence[FileDiff]
    known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def has(self, path: str, other: str) -> bool:
        """Whether a line of `path` may have landed in `other`: in the file itself, or in one that came in its stead."""
        if path == other:
            return True
        if (path, other) not in self.known:
            self.known[path, other] = self._lost(path, other) and any(one.was is None for one in self.index.touching(other))
        return self.known[path, other]

    def _lost(self, path: str, other: str) -> bool:
        """Whether upstream has dropped a file, or has one that a patch adds somewhere else."""
        touches = self.index.touching(path)
        if touches:
            return touches[-1].blob is None
        same_name = path.rpartition("/")[2] == other.rpartition("/")[2]
        return same_name and any(file.path == path and file.old is None for file in self.files)


_Hits = Mapping[int, Mapping[Place, int]]
"""By the step's number: which lines of a patch it has, and how often."""


def _hits(homes: _Homes, telling: Wanted, holders: Mapping[Line, Sequence[Held]], without: Collection[int]) -> _Hits:
    hits: dict[int, Counter[Place]] = defaultdict(Counter)
    own = {line for _, line in telling}
    for place in telling:
        path, (side, number) = place
        for held in holders[side, number]:
            if held.step not in without and homes.has(path, held.path):
                hits[held.step][place] += held.times
                # What a step takes from a file and puts into the one that comes in its stead (it renames it) is nothing new.
                if (-side, number) not in own:
                    hits[held.step][place] -= sum(
                        one.times
                        for one in holders.get((-side, number), ())
                        if one.step == held.step and one.path != held.path and homes.has(path, one.path)
                    )
    return hits


def _in_pull(telling: Wanted, holders: Mapping[Line, Sequence[Held]], step: Step, number: int) -> Found:
    """How much of a patch is in the commit of its pull request, in whatever files."""
    missing = frozenset(place for place in telling if all(held.step != step.number for held in holders[place[1]]))
    # A patch without a telling line has nothing that the number could be held against.
    return Found((step,), _share(telling, missing) if telling else 0.0, missing, number)


def _in_steps(index: Index, telling: Wanted, hits: _Hits) -> Found | None:
    """The step that has most of a patch, and those that have the rest."""
    total = sum(telling.values())
    missing = dict(telling)
    numbers: list[int] = []
    score = 0
    for _ in range(_PARTS):
        shares = {
            step: sum(min(missing[place], max(0, times)) for place, times in own.items() if place in missing)
            for step, own in hits.items()
        }
        # The first of several with the same score: later ones only carried it on.
        number, share = max(shares.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if share < min(FEW, total) or share == 0 or (numbers and share < MORE * total):
            break
        numbers.append(number)
        score += share
        missing = {place: count for place, count in missing.items() if hits[number].get(place, 0) <= 0}
    return Found(tuple(map(index.step, numbers)), score / total, frozenset(missing)) if numbers else None


def _reflowed(objects: Objects, index: Index, files: Sequence[FileDiff], telling: Wanted, found: Found) -> Found:
    """The same with the lines that a step has with other line breaks."""
    there = {place for step in found.steps for place in reflow.there(objects, index, step, files, found.missing)}
    missing = found.missing - there
    return replace(found, missing=missing, score=_share(telling, missing)) if there else found


def _share(telling: Wanted, missing: Collection[Place]) -> float:
    """How much of a patch is not missing."""
    total = sum(telling.values())
    return 1 - sum(telling[place] for place in missing) / total if total else 1.0
