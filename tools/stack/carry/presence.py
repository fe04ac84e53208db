# SPDX-License-Identifier: Apache-2.0
"""Judge for each group of changed lines whether a tree has it, at the place where the patch puts it.

A tree may have the same lines elsewhere, such as the same guard for another kernel. So each group is merged into the tree by
itself. A group that merges without a conflict and changes the tree is absent, whatever lines the tree has elsewhere. A group
in conflict is present only if the tree has its exact lines next to unique lines of the old file, or differs in layout only.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from stack.carry import history
from stack.carry.anchoring import Text, stands
from stack.carry.history import Index, Step, Touch
from stack.carry.merge import FileMerges, Triple, merge, merge_files
from stack.carry.unmerged_remainder import Group, only, patched, split
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects

_CONFLICT = re.compile(
    rb"^<{7} [^\n]*\n(?P<ours>(?:.*?\n)??)={7}\r?\n(?P<theirs>(?:.*?\n)??)>{7} [^\n]*(?:\n|\Z)", re.DOTALL | re.MULTILINE
)


class Extent(IntEnum):
    """How much of a group a tree has; a higher value means more of it."""

    ABSENT = 0
    """It merges cleanly, and changes the tree."""
    UNSURE = 1
    """It is in conflict, and the tree has something else at its place."""
    REWORDED = 2
    """It is in conflict, and the conflicting lines are at most half as many as the lines that it adds."""
    SHORT = 3
    """The tree has a part of the lines that it adds, at its place, and nothing else there."""
    PRESENT = 4
    """Nothing is left to change."""


class Region(NamedTuple):
    """Both sides of one conflict; `start` is the number of lines before it on our side."""

    start: int
    ours: list[bytes]
    theirs: list[bytes]

    def touches(self, place: int, count: int) -> bool:
        """Return whether `count` lines of our side, from line `place` (from 0) on, overlap the conflict or adjoin it."""
        return place <= self.start + len(self.ours) and place + count >= self.start


@dataclass(frozen=True, slots=True)
class Marked:
    """A parsed file with conflict markers: its conflicts, and the file with all of them taken from our or their side."""

    regions: tuple[Region, ...]
    ours: bytes
    theirs: bytes

    @classmethod
    def read(cls, data: bytes) -> "Marked":
        """Parse a merged file."""
        regions: list[Region] = []
        sides: tuple[list[bytes], list[bytes]] = ([], [])
        done = lines = 0
        for conflict in _CONFLICT.finditer(data):
            between, ours, theirs = data[done : conflict.start()], conflict["ours"], conflict["theirs"]
            lines += between.count(b"\n")
            regions.append(Region(lines, split(ours), split(theirs)))
            for side, text in zip(sides, (ours, theirs), strict=True):
                side.extend((between, text))
            lines += ours.count(b"\n")
            done = conflict.end()
        for side in sides:
            side.append(data[done:])
        return cls(tuple(regions), b"".join(sides[0]), b"".join(sides[1]))

    @property
    def is_reworded(self) -> bool:
        """Return whether the sides of the conflicts differ in more than whitespace and punctuation."""
        ours = b"".join(line for region in self.regions for line in region.ours)
        theirs = b"".join(line for region in self.regions for line in region.theirs)
        return ours.translate(None, history.NO_WORD) != theirs.translate(None, history.NO_WORD)

    def extends(self, added: Collection[bytes]) -> bool:
        """Return whether their side only adds some of the lines in `added` to our side."""
        fresh = [region for region in self.regions if region.theirs]
        return bool(fresh) and all(not region.ours and set(region.theirs) <= set(added) for region in fresh)


@dataclass(frozen=True, slots=True)
class Presence:
    """Judges groups of a patch on the tree `before`. `merges` has the known file merges; new ones are added."""

    objects: Objects
    merges: FileMerges
    index: Index
    before: TreeId
    texts: dict[str, Text] = field(default_factory=dict)

    def states(self, groups: Sequence[Group], trees: Sequence[TreeId]) -> list[list[Extent]]:
        """Return the states of all groups, tree by tree; nearly always in two calls of git."""
        whole = self._whole_files(groups, trees)
        asked = [
            [Extent.PRESENT if (tree, group.path) in whole else self._asked(group, tree) for group in groups] for tree in trees
        ]
        merge_files(self.objects, self.merges, [triple for row in asked for triple in row if isinstance(triple, Triple)])
        return [
            [self._state(group, tree, state) for group, state in zip(groups, row, strict=True)]
            for tree, row in zip(trees, asked, strict=True)
        ]

    def sure(self, groups: Sequence[Group], states: Sequence[Extent], step: Step) -> list[Extent]:
        """Return the states right after a step, where a doubtful group counts as present if the step itself brought it."""
        doubted = [group for group, state in zip(groups, states, strict=True) if Extent.ABSENT < state < Extent.PRESENT]
        brought = self._brought_by(doubted, step) if doubted else set()
        return [Extent.PRESENT if group in brought else state for group, state in zip(groups, states, strict=True)]

    def since(self, groups: Sequence[Group], step: Step) -> dict[Group, list[tuple[Touch, Extent]]]:
        """Return each group's states after the later steps that changed its lines; in one merge."""
        touches = {group: [touch for touch in self._touching(group) if touch.step > step] for group in groups}
        states = iter(self.versions([(group, touch.blob) for group, row in touches.items() for touch in row]))
        return {group: [(touch, next(states)) for touch in row] for group, row in touches.items()}

    def versions(self, asked: Sequence[tuple[Group, str | None]]) -> list[Extent]:
        """Return the state of each group in a version of its file, given by its blob; in one merge."""
        entries = [
            (group, Entry(group.new.mode if group.new is not None else FILES[0], blob) if blob is not None else None)
            for group, blob in asked
        ]
        known = [(group, self._asked_of(group, entry)) for group, entry in entries]
        merge_files(self.objects, self.merges, [triple for _, triple in known if isinstance(triple, Triple)])
        return [Extent.UNSURE if state is None else self._told(group, state) for group, state in known]

    def _touching(self, group: Group) -> list[Touch]:
        """Return the steps that changed a line of a group; all steps of its file if a line is too common to be indexed."""
        touches = self.index.touching(group.path)
        lines = {line for raw in (group.hunk.lines if group.hunk is not None else ()) if (line := history.telling(raw))}
        changes = self.index.holders({(side, number) for _, number in lines for side in (1, -1)})
        if not lines or len(changes) < 2 * len(lines):
            return touches
        steps = {held.step for places in changes.values() for held in places if held.path == group.path}
        return [touch for touch in touches if touch.step.number in steps]

    def _whole_files(self, groups: Sequence[Group], trees: Sequence[TreeId]) -> set[tuple[TreeId, str]]:
        """Find the files, as (tree, path), that have all groups of the patch: merging the whole change leaves them as they are.

        Merged alone, each of two neighbouring groups could conflict.
        """
        asked: dict[tuple[TreeId, str], Triple] = {}
        whole: set[tuple[TreeId, str]] = set()
        for path, group in {group.path: group for group in groups}.items():
            for tree in trees:
                have = self.objects.entry(tree, path)
                if have is not None and have == group.new:
                    whole.add((tree, path))
                elif (
                    group.old is not None
                    and group.new is not None
                    and have is not None
                    and have != group.old
                    and have.mode in FILES
                ):
                    asked[tree, path] = Triple(group.old, have, group.new)
        merge_files(self.objects, self.merges, asked.values())
        done = {place: self.merges[triple] for place, triple in asked.items()}
        return whole | {place for place, merged in done.items() if not merged.conflicts and merged.entry == asked[place].ours}

    def _brought_by(self, groups: Sequence[Group], step: Step) -> set[Group]:
        """Find the groups that the step itself brought: merge each into the step's parent, and the result into the step.

        If the second merge changes nothing, the step has the group. Earlier upstream changes next to a group are on both sides
        of that merge, so they cannot conflict.
        """
        first: dict[Group, tuple[Triple, Entry]] = {}
        for group in groups:
            touch = next((change for change in self.index.touching(group.path) if change.step == step), None)
            theirs = self._theirs(group)
            if touch is None or touch.was is None or touch.blob is None or theirs is None or group.old is None:
                continue
            was, now = Entry(theirs.mode, touch.was), Entry(theirs.mode, touch.blob)
            first[group] = Triple(group.old._replace(mode=theirs.mode), was, theirs), now
        merge_files(self.objects, self.merges, [triple for triple, _ in first.values()])
        second: dict[Group, Triple] = {}
        for group, (triple, now) in first.items():
            merged = self.merges[triple]
            if merged.entry is not None and not merged.conflicts and merged.entry != triple.ours:
                second[group] = Triple(triple.ours, now, merged.entry)
        merge_files(self.objects, self.merges, second.values())
        return {
            group
            for group, triple in second.items()
            if not self.merges[triple].conflicts and self.merges[triple].entry == triple.ours
        }

    def _theirs(self, group: Group) -> Entry | None:
        """Return the old file with only this group applied; None if it is not text."""
        if group.hunk is None or group.new is None:
            return None
        data = patched(self.objects.read(group.old.id) if group.old is not None else b"", [group.hunk])
        return Entry(group.new.mode, self.objects.write_blob(data))

    def _asked(self, group: Group, tree: TreeId) -> Extent | Triple | None:
        """Return a group's state if the blobs show it, else the file merge that does; None if whole trees must be merged."""
        return self._asked_of(group, self._entry(tree, group))

    def _asked_of(self, group: Group, have: Entry | None) -> Extent | Triple | None:
        theirs = self._theirs(group)
        if theirs is None:
            return _whole(group.old, group.new, have)
        if have is None:
            return Extent.ABSENT if group.old is None else None
        if have.mode not in FILES:
            return Extent.UNSURE
        base = group.old if group.old is not None else Entry(theirs.mode, self.objects.write_blob(b""))
        if have.id in (theirs.id, base.id):
            return Extent.PRESENT if have.id == theirs.id else Extent.ABSENT
        return Triple(base._replace(mode=have.mode), have, theirs._replace(mode=have.mode))

    def _entry(self, tree: TreeId, group: Group) -> Entry | None:
        """Return a group's file in a tree, under its own name or its later one."""
        return self.objects.entry(tree, group.path) or self.objects.entry(tree, self.index.name(group.path))

    def _state(self, group: Group, tree: TreeId, asked: Extent | Triple | None) -> Extent:
        return self._in_tree(group, tree) if asked is None else self._told(group, asked)

    def _told(self, group: Group, asked: Extent | Triple) -> Extent:
        if isinstance(asked, Extent):
            return asked
        merged = self.merges[asked]
        if not merged.conflicts:
            return Extent.PRESENT if merged.entry == asked.ours else Extent.ABSENT
        return self._in_conflict(group, asked.ours, merged.entry)

    def _in_tree(self, group: Group, tree: TreeId) -> Extent:
        """Return the state of a group whose file the tree lacks: merge whole trees, so that git detects a rename."""
        merged = merge(self.objects, self.merges, self.before, tree, only(self.objects, self.before, [group]))
        if not merged.conflicts:
            return Extent.PRESENT if merged.tree == tree else Extent.ABSENT
        path = merged.conflicts[0].path
        have = self.objects.entry(tree, path)
        return self._in_conflict(group, have, self.objects.entry(merged.tree, path)) if have is not None else Extent.UNSURE

    def _in_conflict(self, group: Group, ours: Entry, merged: Entry | None) -> Extent:
        if any(entry is None or entry.mode not in FILES for entry in (ours, merged)):
            return Extent.UNSURE
        assert merged is not None
        have = self.objects.read(ours.id)
        marked = Marked.read(self.objects.read(merged.id))
        if not marked.regions or marked.ours != have:
            return Extent.UNSURE  # A part of the group merges cleanly.
        if self._has(group, marked, ours) or (not marked.is_reworded and _is_layout(group.path, marked)):
            return Extent.PRESENT
        if _is_pure(group) and marked.extends(group.added):
            return Extent.SHORT
        differing = sum(len(region.theirs) for region in marked.regions)
        return Extent.REWORDED if 2 * differing <= len(group.added) else Extent.UNSURE

    def _has(self, group: Group, marked: Marked, ours: Entry) -> bool:
        """Return whether a file has all lines of a conflicting group at their place, or next to other lines there."""
        assert group.hunk is not None
        have = self._text(ours)
        if stands(group.hunk, self._text(group.old), have):
            return True
        if not _is_pure(group) or any(region.theirs for region in marked.regions):
            return False
        places, count = have.places(group.added), len(group.added)
        return any(region.touches(place, count) for place in places for region in marked.regions)

    def _text(self, entry: Entry | None) -> Text:
        if entry is None:
            return Text.of(b"")
        if entry.id not in self.texts:
            self.texts[entry.id] = Text.of(self.objects.read(entry.id))
        return self.texts[entry.id]


def _is_layout(path: str, marked: Marked) -> bool:
    """Return whether both sides of the conflicts differ in layout only."""
    from stack.carry.structure import layout  # noqa: PLC0415  (a twentieth of a second that few conflicts need)

    return layout.same(path, marked.ours, marked.theirs)


def _is_pure(group: Group) -> bool:
    """Return whether a group only adds lines."""
    return group.hunk is not None and group.hunk.old_count == 0


def _whole(old: Entry | None, new: Entry | None, have: Entry | None) -> Extent:
    """Return the state of a change without lines: a mode, a binary file, a removed or an empty file."""
    if have == new:
        return Extent.PRESENT
    if old is not None and new is not None and old.id == new.id and have is not None:
        return Extent.PRESENT if have.mode == new.mode else Extent.ABSENT
    return Extent.ABSENT if have == old else Extent.UNSURE
