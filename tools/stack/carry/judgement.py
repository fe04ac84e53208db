# SPDX-License-Identifier: Apache-2.0
"""Decide for each group of a patch whether it landed, is lacking, or was taken back by upstream.

A patch has landed if each of its groups was in place after the steps that brought it, and upstream has not taken any back since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from stack.carry import history, landing, residue
from stack.carry.history import Index, Line, Step
from stack.carry.landing import FEW, Found
from stack.carry.merge import FileMerges
from stack.carry.presence import Presence, State
from stack.carry.residue import Group
from stack.model.diff import FileDiff
from stack.model.ids import TreeId
from stack.store.objects import Objects

_Trees = tuple[TreeId, TreeId, TreeId]


class Fate(Enum):
    """The verdict on one group of changed lines."""

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
    presence = Presence(objects, merges, index, before)
    then = [max(column) for column in zip(*(presence.after(groups, step) for step in found.steps), strict=True)]
    if max(then, default=State.ABSENT) < State.REWORDED:
        return None
    now = presence.states(groups, ours)
    had = [group for group, *pair in zip(groups, then, now, strict=True) if State.REWORDED <= pair[0] > pair[1]]
    fate = _Fate(objects, index, files, found, presence.since(had, found.last))
    judged = Judgement(found, tuple(fate.of(*three) for three in zip(groups, then, now, strict=True)))
    judged = replace(judged, parts=tuple(fate.settled(part, judged.having(Fate.REWORKED)) for part in judged.parts))
    return replace(judged, found=replace(found, score=1.0, missing=frozenset())) if judged.landed else judged


@dataclass(frozen=True, slots=True)
class _Fate:
    """Derives a group's fate from its state after the landing and its state on the new base."""

    objects: Objects
    index: Index
    files: Sequence[FileDiff]
    found: Found
    since: Mapping[Group, Sequence[tuple[Step, State]]]
    """The states of groups that were in place once, version by version."""

    def of(self, group: Group, then: State, now: State) -> Part:
        if now is State.PRESENT:
            return Part(group, Fate.LANDED, now)
        if now is State.ABSENT:
            return self._absent(group, then)
        if then is State.PRESENT:
            return self._reworked(group, now)
        return Part(group, Fate.LACKING if then is now is State.SHORT else Fate.BLOCKED, now)

    def settled(self, part: Part, reworked: Sequence[Part]) -> Part:
        """A part taken back by a step that changed others of the same patch is reworked with them."""
        if part.fate is not Fate.TAKEN_BACK:
            return part
        steps = self._undoing(part.group) | ({part.by.number} if part.by is not None else set())
        is_reworked = any(steps & self._undoing(one.group) for one in reworked)
        return replace(part, fate=Fate.REWORKED) if is_reworked else part

    def _undoing(self, group: Group) -> set[int]:
        """The numbers of the later steps that undid any line of a group."""
        undone = {(-side, number) for side, number in _told(group)}
        return {
            held.step
            for places in self.index.holders(undone).values()
            for held in places
            if held.path == group.path and held.step > self.found.last.number
        }

    def _absent(self, group: Group, then: State) -> Part:
        if then < State.REWORDED:
            return Part(group, Fate.LACKING, State.ABSENT)
        by = self._removal(group) or landing.reversal(self.index, self.files, self.found.last)
        if by is not None and then is State.PRESENT and self._is_moved(group, by):
            return Part(group, Fate.REWORKED, State.ABSENT, by)
        return Part(group, Fate.TAKEN_BACK, State.ABSENT, by)

    def _reworked(self, group: Group, now: State) -> Part:
        """A group that was in place and is in conflict now: taken back if it was absent in between, or else changed again."""
        by = self._removal(group)
        if by is None and group.hunk is not None and len(_told(group)) < FEW and self._shown(group) < 0.5:
            # Too few lines are left to recognise a rework.
            by = landing.reversal(self.index, self.files, self.found.last)
        return Part(group, Fate.REWORKED if by is None else Fate.TAKEN_BACK, now, by)

    def _removal(self, group: Group) -> Step | None:
        """The first step after which a group was absent, and was not in place again since."""
        found: Step | None = None
        for step, state in self.since.get(group, ()):
            if state is State.PRESENT:
                found = None
            elif state is State.ABSENT:
                found = found or step
        return found

    def _is_moved(self, group: Group, by: Step) -> bool:
        """Whether the step that removed a group's lines put all of them somewhere else."""
        held = self.index.holders({line for line in _told(group) if line[0] > 0})
        return bool(held) and all(any(one.step == by.number for one in places) for places in held.values())

    def _shown(self, group: Group) -> float:
        """The share of a group's lines that the end of the way shows: added ones that are there, removed ones that are not."""
        touches = self.index.touching(self.index.name(group.path))
        blob = touches[-1].blob if touches else group.old.id if group.old is not None else None
        have = {history.hashed(line) for line in self.objects.read(blob).split(b"\n")} if blob is not None else set()
        told = _told(group)
        return sum((number in have) == (side > 0) for side, number in told) / len(told) if told else 1.0


def _told(group: Group) -> list[Line]:
    """The telling lines of a group."""
    return [line for raw in (group.hunk.lines if group.hunk is not None else ()) if (line := history.telling(raw)) is not None]
