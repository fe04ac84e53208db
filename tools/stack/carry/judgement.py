# SPDX-License-Identifier: Apache-2.0
"""Decide for each part of a patch what became of it: landed, lacking, or taken back by upstream.

A patch has landed if each of its groups was in place after the steps that brought it, and upstream has not taken any back since.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from stack.carry import history, landing, residue
from stack.carry.history import Index, Step, Touch
from stack.carry.landing import FEW, Found
from stack.carry.merge import FileMerges
from stack.carry.presence import Presence, State
from stack.carry.residue import Group
from stack.model.diff import FileDiff
from stack.model.ids import TreeId
from stack.store.objects import Objects

_Trees = tuple[TreeId, TreeId, TreeId]


class Fate(Enum):
    """What became of one group."""

    LANDED = auto()
    """It is in place."""
    REWORKED = auto()
    """It was in place, and upstream changed its lines again or moved them."""
    LACKING = auto()
    """Upstream does not have it, and it merges."""
    BLOCKED = auto()
    """Upstream does not have it, or has it in other words, and it is in conflict."""
    TAKEN_BACK = auto()
    """Upstream had it, and took it out again."""


@dataclass(frozen=True, slots=True)
class Part:
    """A group with its fate; `now`: its state on the new base. `by`: the step that took it back or moved it, where known."""

    group: Group
    fate: Fate
    now: State
    by: Step | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """All parts of a patch, and the steps that brought some of them."""

    found: Found
    parts: tuple[Part, ...]

    def having(self, *fates: Fate) -> tuple[Part, ...]:
        """The parts with one of these fates."""
        return tuple(part for part in self.parts if part.fate in fates)

    @property
    def landed(self) -> bool:
        """Whether upstream has all of it."""
        return len(self.having(Fate.LANDED, Fate.REWORKED)) == len(self.parts)

    @property
    def dropped(self) -> bool:
        """Whether upstream had some of it and has nothing of it any more."""
        return bool(self.having(Fate.TAKEN_BACK)) and not self.having(Fate.LANDED, Fate.REWORKED)


def judge(
    objects: Objects, merges: FileMerges, index: Index, files: Sequence[FileDiff], found: Found, trees: _Trees
) -> Judgement | None:
    """Judge a patch after the steps that may have brought it; None where none of it was in its place after them.

    Args:
        objects: the repository.
        merges: the file merges that are known; it learns more.
        index: the way.
        files: the patch's change.
        found: the steps.
        trees: those before the patch, of the new base with the patches before it, and after it.

    """
    before, ours, after = trees
    groups = residue.groups(objects, before, after)
    then = [objects.tree_of(step.commit) for step in sorted(found.steps)]
    states = Presence(objects, merges, index, before).states(groups, [*then, ours])
    best = [max(column) for column in zip(*states[:-1], strict=True)]
    if max(best, default=State.ABSENT) < State.REWORDED:
        return None
    fate = _Fate(objects, index, files, found)
    parts = tuple(fate.of(group, *pair) for group, *pair in zip(groups, best, states[-1], strict=True))
    judged = Judgement(found, parts)
    return replace(judged, found=replace(found, score=1.0, missing=frozenset())) if judged.landed else judged


@dataclass(frozen=True, slots=True)
class _Fate:
    """Tells the fate of a group by its states after the steps that brought a patch and on the new base."""

    objects: Objects
    index: Index
    files: Sequence[FileDiff]
    found: Found

    def of(self, group: Group, then: State, now: State) -> Part:
        if now is State.PRESENT:
            return Part(group, Fate.LANDED, now)
        if now is State.ABSENT:
            return self._absent(group, then)
        if then is State.PRESENT:
            return self._reworked(group, now)
        return Part(group, Fate.LACKING if then is now is State.SHORT else Fate.BLOCKED, now)

    def _absent(self, group: Group, then: State) -> Part:
        if then < State.REWORDED:
            return Part(group, Fate.LACKING, State.ABSENT)
        by = self._reverted(group) or landing.reversal(self.index, self.files, self.found.last)
        if by is not None and then is State.PRESENT and self._is_moved(group, by):
            return Part(group, Fate.REWORKED, State.ABSENT, by)
        return Part(group, Fate.TAKEN_BACK, State.ABSENT, by)

    def _reworked(self, group: Group, now: State) -> Part:
        """A group that was in place and is in conflict now: taken back by its exact reverse, or changed again."""
        by = self._reverted(group)
        if by is None and _telling(group) < FEW and self._shown(group) < 0.5:
            # Of a line or two nothing is left to tell a rework by.
            by = landing.reversal(self.index, self.files, self.found.last)
        return Part(group, Fate.REWORKED if by is None else Fate.TAKEN_BACK, now, by)

    def _reverted(self, group: Group) -> Step | None:
        """The last later step that has the exact reverse of a group, unless a later one still brought it again."""
        found: Step | None = None
        for touch in self.index.touching(group.path):
            if touch.step <= self.found.last:
                continue
            for forward in self._directions(group, touch):
                found = None if forward else touch.step
        return found

    def _directions(self, group: Group, touch: Touch) -> Iterator[bool]:
        """Whether a step changed the lines of a group as the group does (true) or back (false)."""
        if group.hunk is None:
            was, now = touch.was, touch.blob
            ends = [entry.id if entry is not None else None for entry in (group.old, group.new)]
            if [was, now] in (ends, ends[::-1]):
                yield [was, now] == ends
            return
        own = _sides(group.hunk.lines)
        for lines in _changes(self.objects, touch):
            sides = _sides(lines)
            if sides in (own, own[::-1]):
                yield sides == own

    def _is_moved(self, group: Group, by: Step) -> bool:
        """Whether the step that removed a group's lines put all of them somewhere else."""
        lines = {line for raw in (group.hunk.lines if group.hunk else ()) if (line := history.telling(raw)) and line[0] > 0}
        held = self.index.holders(lines)
        return bool(held) and all(any(one.step == by.number for one in places) for places in held.values())

    def _shown(self, group: Group) -> float:
        """The share of a group's lines that the end of the way shows: added ones that are there, removed ones that are not."""
        touches = self.index.touching(self.index.name(group.path))
        blob = touches[-1].blob if touches else group.old.id if group.old is not None else None
        have = {history.hashed(line) for line in self.objects.read(blob).split(b"\n")} if blob is not None else set()
        told = [line for raw in (group.hunk.lines if group.hunk else ()) if (line := history.telling(raw))]
        return sum((number in have) == (side > 0) for side, number in told) / len(told) if told else 1.0


def _telling(group: Group) -> int:
    return sum(history.telling(line) is not None for line in group.hunk.lines) if group.hunk is not None else FEW


def _sides(lines: Sequence[bytes]) -> list[tuple[bytes, ...]]:
    """What a hunk removes and what it adds."""
    return [tuple(line[1:] for line in lines if line[:1] == side) for side in (b"-", b"+")]


def _changes(objects: Objects, touch: Touch) -> Iterator[tuple[bytes, ...]]:
    """The groups of lines that a step changed in a file."""
    empty = objects.write_blob(b"")
    blobs = [blob if blob is not None else empty for blob in (touch.was, touch.blob)]
    for file in residue.compared(objects, *blobs):
        for hunk in file.hunks:
            yield hunk.lines
