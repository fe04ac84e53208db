# SPDX-License-Identifier: Apache-2.0
"""Find the upstream commits or releases that may contain a patch's change, under whatever subject.

A step is an upstream commit, or a release where there is no history. Each step's added and removed lines are compared with the
patch's, file by file (see `history`). The score is the share of the patch's lines that the step has, too. Lines that many steps
share (a licence header, `return None`) prove nothing and are left out. The result is a list of candidates; `presence` then
checks whether each part of the patch is at its place after them.
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
"""Lowest score at which a step is a candidate."""
FEW = 3
"""A patch with fewer distinctive lines than this is found only in a step that has all of them."""
MORE = 0.2
"""A patch may land in parts: a further commit counts if it has at least this share of the patch that the others lack."""
_PARTS = 3
_REFLOWED = 0.3
"""Lowest score at which the missing lines are searched for with other line breaks."""

_SUBJECT_NUMBER = re.compile(r"\(#(\d+)\)\s*$")
_PULL_ADDRESS = re.compile(r"https?://\S+/(?:pull|merge_requests)/(\d+)\b")
_SAYS_WHERE = frozenset({"upstream", "upstream-pr", "upstream-pull", "pull-request", "pr", "forwarded", "submitted"})

Place = tuple[str, Line]
"""A line of a patch, in the file that has it."""
Wanted = Mapping[Place, int]
"""How often a patch has a line, by the file that has it."""


@dataclass(frozen=True, slots=True)
class LandingCandidates:
    """The candidate steps (the one with most of the patch first), their score, and the lines that none of them has."""

    steps: tuple[Step, ...]
    score: float
    missing: frozenset[Place] = frozenset()
    pull: int | None = None

    @property
    def last(self) -> Step:
        """Return the latest of the steps."""
        return max(self.steps)


def recorded(patch: Patch) -> frozenset[int]:
    """Return the pull requests that a patch names as its own: `(#12)` at the end of its subject, or an address in a trailer."""
    numbers = set(_SUBJECT_NUMBER.findall(patch.subject))
    for key, value in patches.trailers(patch.message):
        if key.lower() in _SAYS_WHERE:
            numbers |= set(_PULL_ADDRESS.findall(value))
    return frozenset(map(int, numbers))


def pull_number(address: str) -> int | None:
    """Return the number of a pull request from its address, or None if it is not one."""
    match = _PULL_ADDRESS.search(address)
    return int(match[1]) if match else None


def search(
    index: Index,
    files: Sequence[FileDiff],
    pulls: Collection[int] = (),
    *,
    objects: Objects | None = None,
    without: Collection[int] = (),
) -> LandingCandidates | None:
    """Find the steps that may have brought a patch; None if no steps have half of it.

    Args:
        index: upstream's changes between the bases.
        files: the patch's change.
        pulls: the numbers of the patch's own pull requests. They may be the fork's own numbers, so a step with such a number
            must have half of the patch like any other.
        objects: the repository; without it, a line is found only where upstream breaks it at the same places.
        without: the numbers of steps to leave out.

    """
    same = next((step for step in index.same_patch(files) if step.number not in without), None)
    if same is not None:
        return LandingCandidates((same,), 1.0)
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
    """Find the step after `brought` that removed most of the patch; None if there is none."""
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
    """Swap added and removed lines; removed lines come first, as git writes them."""
    for changed, group in itertools.groupby(lines, lambda line: line[:1] in (b"+", b"-")):
        if not changed:
            yield from group
            continue
        together = list(group)
        yield from (b"-" + line[1:] for line in together if line[:1] == b"+")
        yield from (b"+" + line[1:] for line in together if line[:1] == b"-")


def wanted(files: Iterable[FileDiff]) -> Wanted:
    """Count the distinctive lines of a patch. The removed lines of a renamed file count under its old name."""
    return Counter((_home(file, line), line) for file in files for line in history.lines(file))


def _home(file: FileDiff, line: Line) -> str:
    return file.old if line[0] < 0 and file.old else file.path


@dataclass(frozen=True, slots=True)
class _Homes:
    """Knows in which other upstream files a patch's lines may have landed: those that replaced a lost file.

    In any other file the same lines belong to a similar change, such as the same fix for another kernel.
    """

    index: Index
    files: Sequence[FileDiff]
    known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def has(self, path: str, other: str) -> bool:
        """Return whether a line of `path` may have landed in `other`: the file itself, or a new file that replaced it."""
        if path == other:
            return True
        if (path, other) not in self.known:
            is_new = any(touch.was is None for touch in self.index.touching(other))
            self.known[path, other] = is_new and self._lost(path, other)
        return self.known[path, other]

    def _lost(self, path: str, other: str) -> bool:
        """Return whether upstream removed a file, or added the patch's new file of that name at another path."""
        touches = self.index.touching(path)
        if touches:
            return touches[-1].blob is None
        same_name = path.rpartition("/")[2] == other.rpartition("/")[2]
        return same_name and any(file.path == path and file.old is None for file in self.files)


_Hits = Mapping[int, Mapping[Place, int]]
"""By the step's number: the lines of the patch that it has, and how often."""


def _hits(homes: _Homes, telling: Wanted, holders: Mapping[Line, Sequence[Held]], without: Collection[int]) -> _Hits:
    hits: dict[int, Counter[Place]] = defaultdict(Counter)
    own = {line for _, line in telling}
    for place in telling:
        path, (side, number) = place
        for held in holders[side, number]:
            if held.step not in without and homes.has(path, held.path):
                hits[held.step][place] += held.times
                # A step that renames a file adds its old lines to the new file: these lines are not new.
                if (-side, number) not in own:
                    hits[held.step][place] -= sum(
                        opposite.times
                        for opposite in holders.get((-side, number), ())
                        if opposite.step == held.step and opposite.path != held.path and homes.has(path, opposite.path)
                    )
    return hits


def _in_pull(telling: Wanted, holders: Mapping[Line, Sequence[Held]], step: Step, number: int) -> LandingCandidates:
    """Compare a patch with the commit of its pull request, whatever files that commit changes."""
    missing = frozenset(place for place in telling if all(held.step != step.number for held in holders[place[1]]))
    # Without distinctive lines, nothing confirms the number.
    return LandingCandidates((step,), _share(telling, missing) if telling else 0.0, missing, number)


def _in_steps(index: Index, telling: Wanted, hits: _Hits) -> LandingCandidates | None:
    """Find the step that has most of a patch, and further steps that have the rest; None if no step has enough."""
    total = sum(telling.values())
    missing = dict(telling)
    numbers: list[int] = []
    score = 0
    for _ in range(_PARTS):
        shares = {
            step: sum(min(missing[place], max(0, times)) for place, times in own.items() if place in missing)
            for step, own in hits.items()
        }
        # Of several steps with the same score take the first: later ones only repeat the change.
        number, share = max(shares.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if share < min(FEW, total) or share == 0 or (numbers and share < MORE * total):
            break
        numbers.append(number)
        score += share
        missing = {place: count for place, count in missing.items() if hits[number].get(place, 0) <= 0}
    return LandingCandidates(tuple(map(index.step, numbers)), score / total, frozenset(missing)) if numbers else None


def _reflowed(
    objects: Objects, index: Index, files: Sequence[FileDiff], telling: Wanted, found: LandingCandidates
) -> LandingCandidates:
    """Return `found` with those missing lines counted that its steps have with other line breaks."""
    reflowed = {place for step in found.steps for place in reflow.there(objects, index, step, files, found.missing)}
    missing = found.missing - reflowed
    return replace(found, missing=missing, score=_share(telling, missing)) if reflowed else found


def _share(telling: Wanted, missing: Collection[Place]) -> float:
    """Return the share of a patch's lines that are not missing, from 0 to 1."""
    total = sum(telling.values())
    return 1 - sum(telling[place] for place in missing) / total if total else 1.0
