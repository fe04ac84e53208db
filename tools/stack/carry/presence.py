# SPDX-License-Identifier: Apache-2.0
"""Judge for each group of changed lines whether a tree has it, at the place where the patch puts it.

The same lines may stand where the patch does not act: the same guard, for another kernel. So each group is merged into the tree
by itself. A group that merges without a conflict and changes the tree is not there, whatever lines the tree has elsewhere. A
group in conflict is there only if the tree has its exact lines beside unique lines of the old file, or differs in layout only.
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


class State(IntEnum):
    """How much of a group a tree has; the higher, the more."""

    ABSENT = 0
    """It merges cleanly, and changes the tree."""
    UNSURE = 1
    """It is in conflict, and the tree has something else at its place."""
    REWORDED = 2
    """It is in conflict, and the tree has at least half of the lines that it adds, at its place."""
    SHORT = 3
    """The tree has a part of the lines that it adds, at its place, and nothing else there."""
    PRESENT = 4
    """Nothing is left to change."""


class Region(NamedTuple):
    """Both sides of one conflict; `start`: the number of lines of ours before it."""

    start: int
    ours: list[bytes]
    theirs: list[bytes]

    def touches(self, place: int, count: int) -> bool:
        """Whether some lines of ours are in the conflict, or adjacent to it."""
        return place <= self.start + len(self.ours) and place + count >= self.start


@dataclass(frozen=True, slots=True)
class Marked:
    """A file with conflict markers, read: its conflicts, and the file with either side of all of them."""

    regions: tuple[Region, ...]
    ours: bytes
    theirs: bytes

    @classmethod
    def read(cls, data: bytes) -> "Marked":
        """Read a merged file."""
        regions: list[Region] = []
        sides: tuple[list[bytes], list[bytes]] = ([], [])
        done = lines = 0
        for found in _CONFLICT.finditer(data):
            between, ours, theirs = data[done : found.start()], found["ours"], found["theirs"]
            lines += between.count(b"\n")
            regions.append(Region(lines, split(ours), split(theirs)))
            for side, text in zip(sides, (ours, theirs), strict=True):
                side.extend((between, text))
            lines += ours.count(b"\n")
            done = found.end()
        for side in sides:
            side.append(data[done:])
        return cls(tuple(regions), b"".join(sides[0]), b"".join(sides[1]))

    @property
    def is_reworded(self) -> bool:
        """Whether the sides of the conflicts differ in more than blanks and signs."""
        ours = b"".join(line for region in self.regions for line in region.ours)
        theirs = b"".join(line for region in self.regions for line in region.theirs)
        return ours.translate(None, history.NO_WORD) != theirs.translate(None, history.NO_WORD)

    def extends(self, added: Collection[bytes]) -> bool:
        """Whether theirs only adds some of these lines to what ours has already."""
        fresh = [region for region in self.regions if region.theirs]
        return bool(fresh) and all(not region.ours and set(region.theirs) <= set(added) for region in fresh)


@dataclass(frozen=True, slots=True)
class Presence:
    """Judges groups of changes from the tree `before` on; `merges` are those that are known, and it learns the rest."""

    objects: Objects
    merges: FileMerges
    index: Index
    before: TreeId
    texts: dict[str, Text] = field(default_factory=dict)

    def states(self, groups: Sequence[Group], trees: Sequence[TreeId]) -> list[list[State]]:
        """The states of the groups in each of some trees; in two calls of git."""
        whole = self._whole_files(groups, trees)
        asked = [
            [State.PRESENT if (tree, group.path) in whole else self._asked(group, tree) for group in groups] for tree in trees
        ]
        merge_files(self.objects, self.merges, [one for row in asked for one in row if isinstance(one, Triple)])
        return [
            [self._state(group, tree, one) for group, one in zip(groups, row, strict=True)]
            for tree, row in zip(trees, asked, strict=True)
        ]

    def sure(self, groups: Sequence[Group], states: Sequence[State], step: Step) -> list[State]:
        """The states of the groups right after a step, with what the step itself brought."""
        doubted = [group for group, state in zip(groups, states, strict=True) if State.ABSENT < state < State.PRESENT]
        brought = self._brought_by(doubted, step) if doubted else set()
        return [State.PRESENT if group in brought else state for group, state in zip(groups, states, strict=True)]

    def since(self, groups: Sequence[Group], step: Step) -> dict[Group, list[tuple[Touch, State]]]:
        """The states of groups in the versions of their files after a step, where one changed their lines; in one merge."""
        touches = {group: [touch for touch in self._touching(group) if touch.step > step] for group in groups}
        states = iter(self.versions([(group, touch.blob) for group, row in touches.items() for touch in row]))
        return {group: [(touch, next(states)) for touch in row] for group, row in touches.items()}

    def versions(self, asked: Sequence[tuple[Group, str | None]]) -> list[State]:
        """The state of each group in a version of its file, by the blob; in one merge."""
        entries = [
            (group, Entry(group.new.mode if group.new is not None else FILES[0], blob) if blob is not None else None)
            for group, blob in asked
        ]
        known = [(group, self._asked_of(group, entry)) for group, entry in entries]
        merge_files(self.objects, self.merges, [one for _, one in known if isinstance(one, Triple)])
        return [State.UNSURE if one is None else self._told(group, one) for group, one in known]

    def _touching(self, group: Group) -> list[Touch]:
        """The steps that changed a line of a group; all of its file where its lines are too common to be found."""
        touches = self.index.touching(group.path)
        told = {line for raw in (group.hunk.lines if group.hunk is not None else ()) if (line := history.telling(raw))}
        held = self.index.holders({(side, number) for _, number in told for side in (1, -1)})
        if not told or len(held) < 2 * len(told):
            return touches
        steps = {one.step for places in held.values() for one in places if one.path == group.path}
        return [touch for touch in touches if touch.step.number in steps]

    def _whole_files(self, groups: Sequence[Group], trees: Sequence[TreeId]) -> set[tuple[TreeId, str]]:
        """Find the files of some trees in which all groups are in place: one merge of the whole file shows it.

        Groups that stand close to each other can conflict when each is merged alone.
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
        return whole | {place for place, one in done.items() if not one.conflicts and one.entry == asked[place].ours}

    def _brought_by(self, groups: Sequence[Group], step: Step) -> set[Group]:
        """Find the groups that the step itself brought: merged into its parent, they are in place after the step.

        Earlier changes beside a group are on both sides of that merge, so they cannot conflict.
        """
        first: dict[Group, tuple[Triple, Entry]] = {}
        for group in groups:
            touch = next((one for one in self.index.touching(group.path) if one.step == step), None)
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
        """A group's file with nothing but the group; None where it is not text."""
        if group.hunk is None or group.new is None:
            return None
        data = patched(self.objects.read(group.old.id) if group.old is not None else b"", [group.hunk])
        return Entry(group.new.mode, self.objects.write_blob(data))

    def _asked(self, group: Group, tree: TreeId) -> State | Triple | None:
        """Read a group's state from the blobs, or name the file merge that shows it; None asks for a merge of whole trees."""
        return self._asked_of(group, self._entry(tree, group))

    def _asked_of(self, group: Group, have: Entry | None) -> State | Triple | None:
        theirs = self._theirs(group)
        if theirs is None:
            return _whole(group.old, group.new, have)
        if have is None:
            return State.ABSENT if group.old is None else None
        if have.mode not in FILES:
            return State.UNSURE
        base = group.old if group.old is not None else Entry(theirs.mode, self.objects.write_blob(b""))
        if have.id in (theirs.id, base.id):
            return State.PRESENT if have.id == theirs.id else State.ABSENT
        return Triple(base._replace(mode=have.mode), have, theirs._replace(mode=have.mode))

    def _entry(self, tree: TreeId, group: Group) -> Entry | None:
        """A group's file in a tree, under its own name or the one that it got on the way."""
        return self.objects.entry(tree, group.path) or self.objects.entry(tree, self.index.name(group.path))

    def _state(self, group: Group, tree: TreeId, asked: State | Triple | None) -> State:
        return self._in_tree(group, tree) if asked is None else self._told(group, asked)

    def _told(self, group: Group, asked: State | Triple) -> State:
        if isinstance(asked, State):
            return asked
        merged = self.merges[asked]
        if not merged.conflicts:
            return State.PRESENT if merged.entry == asked.ours else State.ABSENT
        return self._in_conflict(group, asked.ours, merged.entry)

    def _in_tree(self, group: Group, tree: TreeId) -> State:
        """The state of a group whose file the tree lacks: git looks for what it may have been renamed to."""
        merged = merge(self.objects, self.merges, self.before, tree, only(self.objects, self.before, [group]))
        if not merged.conflicts:
            return State.PRESENT if merged.tree == tree else State.ABSENT
        path = merged.conflicts[0].path
        have = self.objects.entry(tree, path)
        return self._in_conflict(group, have, self.objects.entry(merged.tree, path)) if have is not None else State.UNSURE

    def _in_conflict(self, group: Group, ours: Entry, merged: Entry | None) -> State:
        if any(entry is None or entry.mode not in FILES for entry in (ours, merged)):
            return State.UNSURE
        assert merged is not None
        have = self.objects.read(ours.id)
        marked = Marked.read(self.objects.read(merged.id))
        if not marked.regions or marked.ours != have:
            return State.UNSURE  # a part of it merges cleanly
        if self._has(group, marked, ours) or (not marked.is_reworded and _is_layout(group.path, marked)):
            return State.PRESENT
        if _is_pure(group) and marked.extends(group.added):
            return State.SHORT
        differing = sum(len(region.theirs) for region in marked.regions)
        return State.REWORDED if 2 * differing <= len(group.added) else State.UNSURE

    def _has(self, group: Group, marked: Marked, ours: Entry) -> bool:
        """Whether a file has all lines of a group that is in conflict there, at their place or between others at it."""
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
    """Whether both sides of the conflicts are the same program."""
    from stack.carry.structure import layout  # noqa: PLC0415  (a twentieth of a second that few conflicts need)

    return layout.same(path, marked.ours, marked.theirs)


def _is_pure(group: Group) -> bool:
    """Whether a group only adds lines."""
    return group.hunk is not None and group.hunk.old_count == 0


def _whole(old: Entry | None, new: Entry | None, have: Entry | None) -> State:
    """The state of a change that is one piece: a mode, a binary file, a removed or an empty file."""
    if have == new:
        return State.PRESENT
    if old is not None and new is not None and old.id == new.id and have is not None:
        return State.PRESENT if have.mode == new.mode else State.ABSENT
    return State.ABSENT if have == old else State.UNSURE
