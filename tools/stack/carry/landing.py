# SPDX-License-Identifier: Apache-2.0
"""Which commit or release brought a patch's change upstream, under whatever name and however it was reworked on the way.

A patch is held against the lines that every step of the way added and removed (see `history`): the share of its lines that a
step has, too, is the score. Lines that many steps share (a licence header, `return None`) say nothing and are left out. Where a
patch has too few lines to tell, it has to be the same patch, or its pull request's number has to be recorded.
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.carry import history
from stack.carry.history import Index, Line, Step
from stack.model import patch as patches
from stack.model.diff import FileDiff
from stack.model.ids import TreeId
from stack.model.patch import Patch
from stack.store.objects import FILES, Objects

LANDED = 0.9
"""From here on a patch has landed. Chosen on FlashInfer v0.6.4 -> v0.6.8, reported on other ranges: benchmarks/landing.py."""
PARTLY = 0.5
"""From here on a part of it has; so much is enough, too, where the pull request's number says that it is the same change."""
FEW = 3
"""Fewer telling lines than this prove nothing by themselves."""
COMMON = 0.02
"""A line in more than this share of the commits (and in more than five) is common."""
MORE = 0.2
"""A further commit counts where it has at least this share of the patch that the ones before lack: it landed in parts."""
_PARTS = 3

_SUBJECT_NUMBER = re.compile(r"\(#(\d+)\)\s*$")
_PULL_ADDRESS = re.compile(r"https?://\S+/(?:pull|merge_requests)/(\d+)\b")
_SAYS_WHERE = frozenset({"upstream", "upstream-pr", "upstream-pull", "pull-request", "pr", "forwarded", "submitted"})


@dataclass(frozen=True, slots=True)
class Found:
    """The steps that have most of a patch (the one with most of it first), how much they have, and the lines that none has."""

    steps: tuple[Step, ...]
    score: float
    missing: frozenset[tuple[str, Line]] = frozenset()
    pull: int | None = None

    @property
    def landed(self) -> bool:
        """Whether the score reaches the bar."""
        return self.score >= (PARTLY if self.pull is not None else LANDED)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the patch of which lines are missing."""
        return tuple(sorted({path for path, _ in self.missing}))


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


def search(index: Index, files: Sequence[FileDiff], pulls: Collection[int] = ()) -> Found | None:
    """What brought a patch; None where nothing on the way has half of it.

    Args:
        index: the way.
        files: the patch's change.
        pulls: the numbers of the patch's own pull requests.

    """
    same = index.same_patch(files)
    if same is not None:
        return Found((same,), 1.0)
    wanted = _wanted(files)
    telling = _telling(index, wanted)
    for number in sorted(pulls):
        step = index.pull(number)
        if step is not None:
            return _in_pull(index, telling, step, number)
    if sum(telling.values()) < FEW:
        return None
    found = _by_files(index, files, telling) if index.releases else _by_commits(index, telling)
    return found if found is not None and found.score >= PARTLY else None


def reversal(index: Index, files: Sequence[FileDiff]) -> Step | None:
    """The last step that took a patch back; None where none did so as a whole."""
    found = search(index, [_reversed(file) for file in files])
    return max(found.steps) if found is not None and found.landed else None


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


_Wanted = Mapping[tuple[str, Line], int]
"""How often a patch has a line, by the file that has it."""


def _wanted(files: Sequence[FileDiff]) -> _Wanted:
    return Counter((file.path, line) for file in files for line in history.lines(file))


def _telling(index: Index, wanted: _Wanted) -> dict[tuple[str, Line], int]:
    """The lines that are not common on the way."""
    common = max(5, int(index.units * COMMON))
    spread = {line: index.spread(line) for line in {line for _, line in wanted}}
    return {place: count for place, count in wanted.items() if spread[place[1]] <= common}


def _in_pull(index: Index, telling: _Wanted, step: Step, number: int) -> Found:
    """How much of a patch is in the commit of its pull request."""
    holding = {unit for unit in _units(index, telling) if index.unit(unit)[0] == step.number}
    missing = frozenset(place for place in telling if not holding & {unit for unit, _ in index.holders(place[1])})
    total = sum(telling.values())
    return Found((step,), 1 - sum(telling[place] for place in missing) / total if total else 1.0, missing, number)


def _units(index: Index, telling: _Wanted) -> set[int]:
    return {unit for _, line in telling for unit, _ in index.holders(line)}


def _by_commits(index: Index, telling: _Wanted) -> Found | None:
    """The commit that has most of a patch, and those that have the rest."""
    total = sum(telling.values())
    per_line = Counter[Line]()
    for (_, line), count in telling.items():
        per_line[line] += count
    holders = {line: dict(index.holders(line)) for line in per_line}
    left = dict(per_line)
    steps: list[Step] = []
    score = 0.0
    for _ in range(_PARTS):
        hits: Counter[int] = Counter()
        for line, count in left.items():
            for unit, there in holders[line].items():
                hits[unit] += min(count, there)
        # The first of several with the same score: later ones only carried it on.
        best = max(hits.items(), key=lambda item: (item[1], -item[0])) if hits else None
        if best is None or best[1] < FEW or (steps and best[1] < MORE * total):
            break
        unit, share = best
        steps.append(index.step(index.unit(unit)[0]))
        score += share / total
        left = {line: count for line, count in left.items() if unit not in holders[line]}
    missing = frozenset(place for place in telling if place[1] in left)
    return Found(tuple(steps), score, missing) if steps else None


def _by_files(index: Index, files: Sequence[FileDiff], telling: _Wanted) -> Found | None:
    """The releases whose files have most of a patch, file by file: first the file of the same path, else the one with most."""
    total = sum(telling.values())
    score = 0
    steps: dict[int, Step] = {}
    missing: set[tuple[str, Line]] = set()
    for file in files:
        own = {line: count for (path, line), count in telling.items() if path == file.path}
        holders = {line: dict(index.holders(line)) for line in own}
        hits: Counter[int] = Counter()
        for line, count in own.items():
            for unit, there in holders[line].items():
                hits[unit] += min(count, there)
        best = _best_file(index, hits, file.path)
        missing |= {(file.path, line) for line in own if best not in holders[line]}
        if best is not None:
            score += hits[best]
            step = index.step(index.unit(best)[0])
            steps[step.number] = step
    # All of it is there from the last of them on.
    ordered = tuple(steps[number] for number in sorted(steps, reverse=True))
    return Found(ordered, score / total, frozenset(missing)) if ordered else None


def _best_file(index: Index, hits: Mapping[int, int], path: str) -> int | None:
    ranked = sorted(hits, key=lambda unit: (hits[unit], index.unit(unit)[1] == path, -unit), reverse=True)
    return ranked[0] if ranked and (index.unit(ranked[0])[1] == path or hits[ranked[0]] >= FEW) else None


def present(objects: Objects, tree: TreeId, files: Iterable[FileDiff]) -> float:
    """The share of a patch's change that a tree shows: added lines that are in its file, removed ones that are not.

    A file that the tree lacks counts as showing nothing of what was added.
    """
    there = total = 0
    for file in files:
        entry = objects.entry(tree, file.path)
        data = objects.read(entry.id) if entry is not None and entry.mode in FILES else b""
        have = {history.hashed(line) for line in data.split(b"\n")}
        for side, line in history.lines(file):
            total += 1
            there += (line in have) == (side > 0)
    return there / total if total else 1.0
