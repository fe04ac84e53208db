# SPDX-License-Identifier: Apache-2.0
"""How much of a patch its own place shows in another tree.

The same lines may stand in a file where the patch does not act: a sibling of it, the same guard for another kernel. So the
patch is merged into that tree: what the merge would still bring, cleanly or as a side of a conflict, is not there.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stack.carry import history, landing
from stack.carry.history import Index, Line
from stack.carry.landing import Found
from stack.carry.merge import FileMerges, Triple, merge, merge_files
from stack.model.diff import FileDiff, Hunk, parse
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects

_STILL_THERE = 0.5
"""Where less than this share of a landed change is left in the new base, it was changed again, or taken back."""
_BLANKS = b" \t\r\f\v"


@dataclass(frozen=True, slots=True)
class Judge:
    """What a landing that was found by its lines is worth. `tree` is the new base's."""

    objects: Objects
    merges: FileMerges
    index: Index
    tree: TreeId

    def in_place(self, found: Found, files: Sequence[FileDiff], trees: tuple[TreeId, TreeId, TreeId]) -> bool:
        """Whether the patch's own place shows it just after the step that brought it.

        `trees` are those before the patch, of the new base with the patches before it, and after it.
        """
        if not found.place:
            return True
        before, _, after = trees
        then = self.objects.tree_of(found.last.commit)
        there = share(self.objects, self.merges, files, (before, after), then)
        if there >= found.place if there is not None else found.place < 1:
            return True
        return anchored(self.objects, files, before, then) >= found.place

    def is_whole(self, found: Found, trees: tuple[TreeId, TreeId, TreeId]) -> bool:
        """Whether nothing of a patch is left to bring just after the step that brought it."""
        then = self.objects.tree_of(found.last.commit)
        if found.whole:
            return True
        merged = merge(self.objects, self.merges, trees[0], then, trees[2])
        return not merged.conflicts and merged.tree == then

    def tells(self, diff: bytes) -> bool:
        """Whether a change is more than empty lines and brackets."""
        files = parse(diff) if diff else ()
        return any(not file.hunks or any(True for _ in history.lines(file)) for file in files)

    def is_there(self, files: Sequence[FileDiff]) -> bool:
        """Whether the new base has most of a patch."""
        return landing.present(self.objects, self.index, self.tree, files) >= _STILL_THERE

    def is_gone(self, found: Found, files: Sequence[FileDiff], trees: tuple[TreeId, TreeId, TreeId], conflicts: bool) -> bool:
        """Whether upstream had a patch and dropped it again: little of it is there, and it merges as if nothing had been.

        Where it does not merge it may have been reworked: then there has to be a step that took it back.
        """
        before, _, after = trees
        if self.is_there(files) or (share(self.objects, self.merges, files, (before, after), self.tree) or 0) >= _STILL_THERE:
            return False
        if not conflicts or landing.reverted(self.index, files, found.last):
            return True
        # Of a line or two nothing is left to tell a rework by.
        return found.place == 1 and landing.reversal(self.index, files, found.last) is not None


def share(
    objects: Objects, merges: FileMerges, files: Sequence[FileDiff], change: tuple[TreeId, TreeId], tree: TreeId
) -> float | None:
    """How much of a patch (`files`; `change` are the trees before and after it) another tree shows in its place.

    A file that the tree lacks is not asked, since it may have another name there; None where that leaves nothing to ask.
    """
    wanted: dict[str, Counter[Line]] = defaultdict(Counter)
    for (path, line), count in landing.wanted(files).items():
        wanted[path][line] = count
    asked = list(_asked(objects, wanted, change, tree))
    merge_files(objects, merges, [one.triple for one in asked if one.triple and one.have != one.new])
    left = total = 0
    for one in asked:
        lines = wanted[one.path]
        total += lines.total()
        brought = _bringing(objects, merges, one) if one.have != one.new else {}
        left += sum(min(count, brought.get(line, 0)) for line, count in lines.items())
    return 1 - left / total if total else None


def anchored(objects: Objects, files: Sequence[FileDiff], before: TreeId, tree: TreeId) -> float:
    """The same, told by the lines beside each hunk: a merge puts a hunk elsewhere where both sides add at one place.

    A hunk is there if all of it stands in the file beside lines that there are only once before the patch.
    """
    there = total = 0
    for file in files:
        size = [sum(line[:1] in (b"+", b"-") for line in hunk.lines) for hunk in file.hunks]
        total += sum(size)
        was, have = (objects.entry(where, path) if path else None for where, path in ((before, file.old), (tree, file.new)))
        if was is None or have is None or was.mode not in FILES or have.mode not in FILES:
            continue
        old, now = (b"\n".join((b"", *filter(None, _lines(objects.read(entry.id))), b"")) for entry in (was, have))
        there += sum(count for hunk, count in zip(file.hunks, size, strict=True) if _stands(hunk, old, now))
    return there / total if total else 0.0


def _stands(hunk: Hunk, old: bytes, now: bytes) -> bool:
    lines = [(line[:1], line[1:].translate(None, _BLANKS)) for line in hunk.lines]
    changed = [place for place, (kind, _) in enumerate(lines) if kind in (b"+", b"-")]
    above, block, below = (
        [text for kind, text in part if text and kind in (b"+", b" ")]
        for part in (lines[: changed[0]], lines[changed[0] : changed[-1] + 1], lines[changed[-1] + 1 :])
    )
    if not block:
        return False
    sides = (
        [(above[-count:], above[-count:] + block) for count in range(1, len(above) + 1)],
        [(below[:count], block + below[:count]) for count in range(1, len(below) + 1)],
    )
    anchored = (next((both for anchor, both in side if old.count(_whole(anchor)) == 1), None) for side in sides)
    return any(both is not None and _whole(both) in now for both in anchored)


def _whole(lines: Sequence[bytes]) -> bytes:
    return b"\n".join((b"", *lines, b""))


class _Asked(NamedTuple):
    """A file before and after a patch, and in the tree that is asked."""

    path: str
    old: Entry | None
    new: Entry | None
    have: Entry | None

    @property
    def triple(self) -> Triple | None:
        """What has to be merged; None where a side is missing."""
        return Triple(self.old, self.have, self.new) if self.old and self.have and self.new else None


def _asked(objects: Objects, paths: Container[str], change: tuple[TreeId, TreeId], tree: TreeId) -> Iterator[_Asked]:
    for path, old, new in objects.difference(*change):
        have = objects.entry(tree, path)
        plain = all(entry is None or entry.mode in FILES for entry in (old, new, have))
        if path in paths and plain and (have is not None or new is None):
            yield _Asked(path, old, new, have)


def _bringing(objects: Objects, merges: FileMerges, one: _Asked) -> Counter[Line]:
    """The lines that a patch would still add to a file or remove from it."""
    ours, new = (objects.read(entry.id) if entry is not None else b"" for entry in (one.have, one.new))
    if one.triple is None:
        return _brought([(_lines(ours), _lines(new))])
    merged = merges[one.triple]
    lines = _lines(objects.read(merged.entry.id) if merged.entry is not None else b"")
    return _brought(_sides(_lines(ours), lines) if merged.conflicts else [(_lines(ours), lines)])


def _brought(pairs: Iterable[tuple[list[bytes], list[bytes]]]) -> Counter[Line]:
    """The lines that the second of each pair has more or less than the first."""
    brought: Counter[Line] = Counter()
    for old, new in pairs:
        was, now = Counter(old), Counter(new)
        for side, lines in ((1, now - was), (-1, was - now)):
            brought.update({(side, history.hashed(line)): count for line, count in lines.items()})
    return brought


def _lines(data: bytes) -> list[bytes]:
    return data.translate(None, _BLANKS).split(b"\n")


def _sides(ours: list[bytes], merged: list[bytes]) -> list[tuple[list[bytes], list[bytes]]]:
    """Our side and theirs of each conflict, and first of what merges cleanly, where a conflict counts as our side of it."""
    settled: list[bytes] = []
    pairs = [(ours, settled)]
    theirs: list[bytes] | None = None
    for line in merged:
        if line.startswith(b"<<<<<<<"):
            mine: list[bytes] = []
            into, theirs = mine, []
            pairs.append((mine, theirs))
        elif line == b"=======" and theirs is not None:
            settled += mine
            into = theirs
        elif line.startswith(b">>>>>>>"):
            theirs = None
        else:
            (settled if theirs is None else into).append(line)
    return pairs
