# SPDX-License-Identifier: Apache-2.0
"""Judge for each group of changed lines whether a tree has it, at the place where the patch puts it.

The same lines may stand where the patch does not act: the same guard, for another kernel. So each group is merged into the tree
by itself. A group that merges without a conflict and changes the tree is not there, whatever lines the tree has elsewhere. A
group in conflict is there only if the tree has its exact lines beside unique lines of the old file, or differs in layout only.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from stack.carry import history
from stack.carry.history import Index, Step, Touch
from stack.carry.merge import FileMerges, Triple, merge, merge_files
from stack.carry.residue import Group, only, patched, split
from stack.carry.structure import layout
from stack.model.diff import Hunk
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects

_ANCHOR = 12
"""Lines beside a group that may be needed to find a place that is there only once."""


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
        """Whether some lines of ours are in the conflict or right beside it."""
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
        into: Sequence[list[bytes]] = sides
        for line in split(data):
            if line.startswith(b"<<<<<<< ") and into is sides:
                regions.append(Region(len(sides[0]), [], []))
                into = (regions[-1].ours, sides[0])
            elif line.rstrip(b"\r\n") == b"=======" and regions and into[0] is regions[-1].ours:
                into = (regions[-1].theirs, sides[1])
            elif line.startswith(b">>>>>>> ") and regions and into[0] is regions[-1].theirs:
                into = sides
            else:
                for side in into:
                    side.append(line)
        return cls(tuple(regions), b"".join(sides[0]), b"".join(sides[1]))

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

    def states(self, groups: Sequence[Group], tree: TreeId) -> list[State]:
        """The state of each group in a tree."""
        whole = self._whole_files(groups, tree)
        asked = [State.PRESENT if group.path in whole else self._asked(group, tree) for group in groups]
        merge_files(self.objects, self.merges, [one for one in asked if isinstance(one, Triple)])
        return [self._state(group, tree, one) for group, one in zip(groups, asked, strict=True)]

    def after(self, groups: Sequence[Group], step: Step) -> list[State]:
        """The state of each group right after a step."""
        states = self.states(groups, self.objects.tree_of(step.commit))
        doubted = [group for group, state in zip(groups, states, strict=True) if State.ABSENT < state < State.PRESENT]
        sure = self._brought_by(doubted, step) if doubted else set()
        return [State.PRESENT if group in sure else state for group, state in zip(groups, states, strict=True)]

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

    def _whole_files(self, groups: Sequence[Group], tree: TreeId) -> set[str]:
        """Find the files whose groups are all in place: one merge of the whole file shows it.

        Groups that stand close to each other can conflict when each is merged alone.
        """
        triples: dict[str, Triple] = {}
        for group in groups:
            have = self.objects.entry(tree, group.path)
            if group.old is not None and group.new is not None and have is not None and have.mode in FILES:
                triples[group.path] = Triple(group.old, have, group.new)
        merge_files(self.objects, self.merges, triples.values())
        done = {path: self.merges[triple] for path, triple in triples.items()}
        return {path for path, one in done.items() if not one.conflicts and one.entry == triples[path].ours}

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
        old = self.objects.read(group.old.id) if group.old is not None else b""
        if layout.same(group.path, marked.ours, marked.theirs) or _has(group, marked, split(old), split(have)):
            return State.PRESENT
        if _is_pure(group) and marked.extends(group.added):
            return State.SHORT
        differing = sum(len(region.theirs) for region in marked.regions)
        return State.REWORDED if 2 * differing <= len(group.added) else State.UNSURE


def _is_pure(group: Group) -> bool:
    """Whether a group only adds lines."""
    return group.hunk is not None and group.hunk.old_count == 0


def _has(group: Group, marked: Marked, old: Sequence[bytes], have: Sequence[bytes]) -> bool:
    """Whether a file has all lines of a group that is in conflict there, at their place or between others at it."""
    assert group.hunk is not None
    if stands(group.hunk, old, have):
        return True
    if not _is_pure(group) or any(region.theirs for region in marked.regions):
        return False
    places, count = _Text.of(have).places(group.added), len(group.added)
    return any(region.touches(place, count) for place in places for region in marked.regions)


def _whole(old: Entry | None, new: Entry | None, have: Entry | None) -> State:
    """The state of a change that is one piece: a mode, a binary file, a removed or an empty file."""
    if have == new:
        return State.PRESENT
    if old is not None and new is not None and old.id == new.id and have is not None:
        return State.PRESENT if have.mode == new.mode else State.ABSENT
    return State.ABSENT if have == old else State.UNSURE


def stands(hunk: Hunk, old: Sequence[bytes], have: Sequence[bytes]) -> bool:
    """Whether a file has the lines of a hunk without context beside lines that both files have exactly once.

    The hunk and the lines beside it may be indented otherwise, if all of them are so alike.
    """
    start = hunk.old_start - (1 if hunk.old_count else 0)
    end = start + hunk.old_count
    was, now = _Text.of(old), _Text.of(have)
    gone, new = old[start:end], [line[1:] + b"\n" for line in hunk.lines if line[:1] == b"+"]
    if not new and len(now.places(gone)) >= len(was.places(gone)):
        return False
    above, below = old[max(0, start - _ANCHOR) : start], old[end : end + _ANCHOR]
    return _beside(above, new, gone, was, now, below=False) or _beside(below, new, gone, was, now, below=True)


def _beside(
    side: Sequence[bytes], new: Sequence[bytes], gone: Sequence[bytes], was: "_Text", now: "_Text", *, below: bool
) -> bool:
    """Whether the lines of a hunk follow those above it, or precede those below it, at a place that is there once."""
    for count in range(1, len(side) + 1):
        anchor = side[:count] if below else side[len(side) - count :]
        if not any(history.telling(b"+" + line) for line in anchor) or len(was.places(anchor)) != 1:
            continue
        places = now.places(anchor)
        if len(places) != 1:
            return False
        have = now.lines
        first = places[0] - len(new) if below else places[0] + count
        low, high = (first, places[0] + count) if below else (places[0], first + len(new))
        wanted = [*new, *anchor] if below else [*anchor, *new]
        if low < 0 or _flush(have[low:high]) != _flush(wanted):
            return False
        rest = have[low - len(gone) : low] if below else have[high : high + len(gone)]
        return not gone or _flush(rest) != _flush(gone)
    return False


@dataclass(frozen=True, slots=True)
class _Text:
    """A file's lines, and where each stands without its indentation."""

    lines: Sequence[bytes]
    at: Mapping[bytes, Sequence[int]]

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "_Text":
        at: dict[bytes, list[int]] = {}
        for place, line in enumerate(lines):
            at.setdefault(line.strip(), []).append(place)
        return cls(lines, at)

    def places(self, block: Sequence[bytes]) -> list[int]:
        """Where a block of lines stands, indented in any way as a whole."""
        wanted, size = _flush(block), len(block)
        first = min(range(size), key=lambda number: len(self.at.get(block[number].strip(), ())))
        starts = [place - first for place in self.at.get(block[first].strip(), ())]
        return [start for start in starts if start >= 0 and _flush(self.lines[start : start + size]) == wanted]


def _flush(lines: Sequence[bytes]) -> list[bytes]:
    """Lines without the indentation that all of them share, and without a last line end."""
    inked = [line for line in lines if line.strip()]
    margin = min((line[: len(line) - len(line.lstrip(b" \t"))] for line in inked), key=len, default=b"")
    shared = len(margin) if all(line.startswith(margin) for line in inked) else 0
    return [line[shared:].rstrip(b"\n") if line.strip() else line.rstrip(b"\n") for line in lines]
