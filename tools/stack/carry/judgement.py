# SPDX-License-Identifier: Apache-2.0
"""Decide for each group of a patch whether it landed, is lacking, or was taken back by upstream.

A patch has landed if each of its groups was in place after the steps that brought it, and upstream has not removed any since.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from stack.carry import history, landing, moved_lines, unmerged_remainder
from stack.carry.history import Index, Line, Step, Touch
from stack.carry.landing import FEW, LandingCandidates
from stack.carry.merge import FileMerges
from stack.carry.presence import Extent, Presence
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
    """It was in place, and upstream has changed or moved its lines since."""
    LACKING = auto()
    """Upstream does not have it, and it merges cleanly."""
    BLOCKED = auto()
    """It is in conflict: upstream does not have it, or has a different version."""
    TAKEN_BACK = auto()
    """Upstream had it, and took it out again."""


@dataclass(frozen=True, slots=True)
class Part:
    """A group with its fate. `now`: its state on the new base. `by`: the step that took it back or moved it, if known.

    `moved`: its lines are in other files now.
    """

    group: Group
    fate: Fate
    now: Extent
    by: Step | None = None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """All parts of a patch, and the steps that brought some of them."""

    found: LandingCandidates
    parts: tuple[Part, ...]

    def having(self, *fates: Fate) -> tuple[Part, ...]:
        """Return the parts with one of these fates."""
        return tuple(part for part in self.parts if part.fate in fates)

    @property
    def landed(self) -> bool:
        """Return whether upstream has the whole patch."""
        return len(self.having(Fate.LANDED, Fate.REWORKED)) == len(self.parts)

    @property
    def dropped(self) -> bool:
        """Return whether upstream had some of the patch and now has none of it."""
        return bool(self.having(Fate.TAKEN_BACK)) and not self.having(Fate.LANDED, Fate.REWORKED)


def judge(
    objects: Objects, merges: FileMerges, index: Index, files: Sequence[FileDiff], found: LandingCandidates, trees: _Trees
) -> Judgement | None:
    """Judge whether the steps in `found` brought a patch; None if no part of it was in place after them.

    Args:
        objects: the repository.
        merges: the known file merges; new ones are added.
        index: upstream's changes between the bases.
        files: the patch's change.
        found: the steps that may have brought it.
        trees: the trees before the patch, of the new base with the earlier patches, and after the patch.

    """
    before, ours, after = trees
    groups = unmerged_remainder.groups(objects, before, after)
    presence = Presence(objects, merges, index, before)
    *right_after, now = presence.states(groups, [*(objects.tree_of(step.commit) for step in found.steps), ours])
    sure = [presence.sure(groups, states, step) for step, states in zip(found.steps, right_after, strict=True)]
    then = [max(column) for column in zip(*sure, strict=True)]
    if max(then, default=Extent.ABSENT) < Extent.REWORDED:
        return None
    had = [group for group, *pair in zip(groups, then, now, strict=True) if Extent.REWORDED <= pair[0] > pair[1]]
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
    found: LandingCandidates
    presence: Presence
    since: Mapping[Group, Sequence[tuple[Touch, Extent]]]
    """For each group that was in place and is less so now: its state in each later version of its file."""

    def of(self, group: Group, then: Extent, now: Extent) -> Part:
        if now is Extent.PRESENT:
            return Part(group, Fate.LANDED, now)
        if now is Extent.ABSENT:
            return self._absent(group, then)
        if then is Extent.PRESENT:
            return self._reworked(group, now)
        return Part(group, Fate.LACKING if then is now is Extent.SHORT else Fate.BLOCKED, now)

    def settled(self, part: Part, reworked: Sequence[Part]) -> Part:
        """Return a part that was taken back as reworked if the same step reworked other parts of the patch.

        If that step moved the other parts to another file, it may have dropped this one: the file must have its lines, too.
        """
        if part.fate is not Fate.TAKEN_BACK:
            return part
        if part.by is not None and any(other.moved and other.by == part.by for other in reworked):
            is_moved = self._is_moved(part.group, part.by, 1)
            return replace(part, fate=Fate.REWORKED, moved=True) if is_moved else part
        steps = {part.by, *(step for step, _ in self._departures(part.group))}
        last = [(other.group, was) for other in reworked for step, was in self._departures(other.group) if step in steps]
        # Two groups may have the same lines. So check that the other group itself was in place before the step.
        is_reworked = Extent.PRESENT in self.presence.versions(last)
        return replace(part, fate=Fate.REWORKED) if is_reworked else part

    def _departures(self, group: Group) -> Iterator[tuple[Step, str | None]]:
        """Yield each step that made a group's state worse than present, and the blob of its file before the step."""
        was = Extent.PRESENT
        for touch, state in self.since.get(group, ()):
            if was is Extent.PRESENT and state is not Extent.PRESENT:
                yield touch.step, touch.was
            was = state

    def _absent(self, group: Group, then: Extent) -> Part:
        if then < Extent.REWORDED:
            return Part(group, Fate.LACKING, Extent.ABSENT)
        by = self._removal(group)
        if by is None and then is Extent.PRESENT:
            step = self._rewriting(group)
            if step is not None or self._is_still_there(group):
                return Part(group, Fate.REWORKED, Extent.ABSENT, step)
        by = by or landing.reversal(self.index, self.files, self.found.last)
        if by is not None and then is Extent.PRESENT and self._is_moved(group, by, FEW):
            return Part(group, Fate.REWORKED, Extent.ABSENT, by, moved=True)
        return Part(group, Fate.TAKEN_BACK, Extent.ABSENT, by)

    def _reworked(self, group: Group, now: Extent) -> Part:
        """Judge a group that was in place and is in conflict now: taken back if it was absent in between, else reworked."""
        by = self._removal(group)
        if by is None and group.hunk is not None and len(moved_lines.told(group)) < FEW and self._shown(group) < 0.5:
            # Too few lines are left to recognise a rework.
            by = landing.reversal(self.index, self.files, self.found.last)
        return Part(group, Fate.REWORKED if by is None else Fate.TAKEN_BACK, now, by)

    def _removal(self, group: Group) -> Step | None:
        """Return the first step that removed a group, if the group has not been in place again since."""
        removal: Step | None = None
        for touch, state in self.since.get(group, ()):
            if state is Extent.PRESENT:
                removal = None
            elif (
                state is Extent.ABSENT
                and removal is None
                and not self._keeps(group, touch)
                and not self._rewrites(group, touch)
            ):
                removal = touch.step
        return removal

    def _rewriting(self, group: Group) -> Step | None:
        """Return the first step that rewrote a group elsewhere in its file."""
        steps = self.since.get(group, ())
        return next((touch.step for touch, state in steps if state is Extent.ABSENT and self._rewrites(group, touch)), None)

    def _keeps(self, group: Group, touch: Touch) -> bool:
        return moved_lines.keeps(group, self._common(group), self._read(touch.was), self._read(touch.blob))

    def _rewrites(self, group: Group, touch: Touch) -> bool:
        old = self._read(group.old.id if group.old is not None else None)
        return moved_lines.rewrites(group, old, self._read(touch.was), self._read(touch.blob))

    def _is_still_there(self, group: Group) -> bool:
        """Return whether the file still has a group's lines as often as right after the landing, at whatever place."""
        landed = [touch.blob for touch in self.index.touching(group.path) if touch.step <= self.found.last]
        return moved_lines.keeps(group, self._common(group), self._read(landed[-1]), self._end(group)) if landed else False

    def _common(self, group: Group) -> set[Line]:
        """Return the lines of a group that are common, that is, in many steps."""
        lines = set(moved_lines.told(group))
        return lines - self.index.holders(lines).keys()

    def _end(self, group: Group) -> bytes:
        """Return a group's file on the new base; empty if it was removed."""
        touches = self.index.touching(self.index.name(group.path))
        return self._read(touches[-1].blob if touches else group.old.id if group.old is not None else None)

    def _read(self, blob: str | None) -> bytes:
        return self.objects.read(blob) if blob is not None else b""

    def _is_moved(self, group: Group, by: Step, least: int) -> bool:
        """Return whether step `by` put all lines that a group adds, and at least `least` of them, into other files.

        One or two lines can be in another file by chance.
        """
        changes = self.index.holders({line for line in moved_lines.told(group) if line[0] > 0})
        return len(changes) >= least and all(
            any(held.step == by.number and held.path != group.path for held in places) for places in changes.values()
        )

    def _shown(self, group: Group) -> float:
        """Return the share of a group's lines that hold on the new base: added lines that are there, removed ones that are not."""
        have = {history.hashed(line) for line in self._end(group).split(b"\n")}
        lines = moved_lines.told(group)
        return sum((number in have) == (side > 0) for side, number in lines) / len(lines) if lines else 1.0
