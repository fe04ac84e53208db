# SPDX-License-Identifier: Apache-2.0
"""Decide for each group of a patch whether it landed, is lacking, or was taken back by upstream.

A patch has landed if each of its groups was in place after the steps that brought it, and upstream has not taken any back since.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from stack.carry import history, landing, moved_lines, unmerged_remainder
from stack.carry.history import Index, Line, Step, Touch
from stack.carry.landing import FEW, Found
from stack.carry.merge import FileMerges
from stack.carry.presence import Presence, State
from stack.carry.unmerged_remainder import Group
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
    """A group with its fate; `now`: its state on the new base. `by`: the step that took it back or moved it, where known.

    `moved`: its lines are in other files now.
    """

    group: Group
    fate: Fate
    now: State
    by: Step | None = None
    moved: bool = False


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
    groups = unmerged_remainder.groups(objects, before, after)
    presence = Presence(objects, merges, index, before)
    *right_after, now = presence.states(groups, [*(objects.tree_of(step.commit) for step in found.steps), ours])
    sure = [presence.sure(groups, states, step) for step, states in zip(found.steps, right_after, strict=True)]
    then = [max(column) for column in zip(*sure, strict=True)]
    if max(then, default=State.ABSENT) < State.REWORDED:
        return None
    had = [group for group, *pair in zip(groups, then, now, strict=True) if State.REWORDED <= pair[0] > pair[1]]
    fate = _Fate(objects, index, files, found, presence, presence.since(had, found.last))
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
    presence: Presence
    since: Mapping[Group, Sequence[tuple[Touch, State]]]
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
        """A part taken back by a step that changed others of the same patch is reworked with them.

        Where the step moved the others to another file, the part's lines have to be there, too: it may have dropped them.
        """
        if part.fate is not Fate.TAKEN_BACK:
            return part
        if part.by is not None and any(one.moved and one.by == part.by for one in reworked):
            is_moved = self._is_moved(part.group, part.by, 1)
            return replace(part, fate=Fate.REWORKED, moved=True) if is_moved else part
        steps = {part.by, *(step for step, _ in self._departures(part.group))}
        last = [(one.group, was) for one in reworked for step, was in self._departures(one.group) if step in steps]
        # A step has lines of another group, too, if both have the same lines.
        is_reworked = State.PRESENT in self.presence.versions(last)
        return replace(part, fate=Fate.REWORKED) if is_reworked else part

    def _departures(self, group: Group) -> Iterator[tuple[Step, str | None]]:
        """The steps after which a group was not in place though it was after the last that had its lines, and the file before."""
        was = State.PRESENT
        for touch, state in self.since.get(group, ()):
            if was is State.PRESENT and state is not State.PRESENT:
                yield touch.step, touch.was
            was = state

    def _absent(self, group: Group, then: State) -> Part:
        if then < State.REWORDED:
            return Part(group, Fate.LACKING, State.ABSENT)
        by = self._removal(group)
        if by is None and then is State.PRESENT:
            step = self._rewriting(group)
            if step is not None or self._is_still_there(group):
                return Part(group, Fate.REWORKED, State.ABSENT, step)
        by = by or landing.reversal(self.index, self.files, self.found.last)
        if by is not None and then is State.PRESENT and self._is_moved(group, by, FEW):
            return Part(group, Fate.REWORKED, State.ABSENT, by, moved=True)
        return Part(group, Fate.TAKEN_BACK, State.ABSENT, by)

    def _reworked(self, group: Group, now: State) -> Part:
        """A group that was in place and is in conflict now: taken back if it was absent in between, or else changed again."""
        by = self._removal(group)
        if by is None and group.hunk is not None and len(moved_lines.told(group)) < FEW and self._shown(group) < 0.5:
            # Too few lines are left to recognise a rework.
            by = landing.reversal(self.index, self.files, self.found.last)
        return Part(group, Fate.REWORKED if by is None else Fate.TAKEN_BACK, now, by)

    def _removal(self, group: Group) -> Step | None:
        """The first step that removed a group, if it was not in place again since."""
        found: Step | None = None
        for touch, state in self.since.get(group, ()):
            if state is State.PRESENT:
                found = None
            elif state is State.ABSENT and found is None and not self._keeps(group, touch) and not self._rewrites(group, touch):
                found = touch.step
        return found

    def _rewriting(self, group: Group) -> Step | None:
        """The first step that wrote a group anew, elsewhere in its file."""
        steps = self.since.get(group, ())
        return next((touch.step for touch, state in steps if state is State.ABSENT and self._rewrites(group, touch)), None)

    def _keeps(self, group: Group, touch: Touch) -> bool:
        return moved_lines.keeps(group, self._common(group), self._read(touch.was), self._read(touch.blob))

    def _rewrites(self, group: Group, touch: Touch) -> bool:
        old = self._read(group.old.id if group.old is not None else None)
        return moved_lines.rewrites(group, old, self._read(touch.was), self._read(touch.blob))

    def _is_still_there(self, group: Group) -> bool:
        """Whether a file has a group's lines as often as right after the landing, though not where the group puts them."""
        landed = [touch.blob for touch in self.index.touching(group.path) if touch.step <= self.found.last]
        return moved_lines.keeps(group, self._common(group), self._read(landed[-1]), self._end(group)) if landed else False

    def _common(self, group: Group) -> set[Line]:
        """The lines of a group that many steps have."""
        lines = set(moved_lines.told(group))
        return lines - self.index.holders(lines).keys()

    def _end(self, group: Group) -> bytes:
        """A group's file at the end of the way; nothing where it is gone."""
        touches = self.index.touching(self.index.name(group.path))
        return self._read(touches[-1].blob if touches else group.old.id if group.old is not None else None)

    def _read(self, blob: str | None) -> bytes:
        return self.objects.read(blob) if blob is not None else b""

    def _is_moved(self, group: Group, by: Step, least: int) -> bool:
        """Whether the step that removed a group's lines put all of them, and at least so many, into other files.

        One or two lines alone can be in another file by chance.
        """
        held = self.index.holders({line for line in moved_lines.told(group) if line[0] > 0})
        return len(held) >= least and all(
            any(one.step == by.number and one.path != group.path for one in places) for places in held.values()
        )

    def _shown(self, group: Group) -> float:
        """The share of a group's lines that the end of the way shows: added ones that are there, removed ones that are not."""
        have = {history.hashed(line) for line in self._end(group).split(b"\n")}
        told = moved_lines.told(group)
        return sum((number in have) == (side > 0) for side, number in told) / len(told) if told else 1.0
