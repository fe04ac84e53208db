# SPDX-License-Identifier: Apache-2.0
"""Whether another pull request does the same: how many of the lines that the one adds the other adds, too.

A line counts the less, the more often it stands in the upstream's tree already: `return None` and a licence header say nothing.
Line breaks do not count, nor do blanks: a formatter makes others. Whoever does a part of what the other one does shows, too, so
both are asked how much of them the other has, and the greater share is the score. A change that only removes is compared by
what it removes.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from stack.carry import history, reflow
from stack.model.diff import DiffError, FileDiff, parse
from stack.model.ids import TreeId
from stack.store.objects import FILES, FOLDER, Objects

BAR = 0.4
"""From here on a person has to look: docs/export-pr.md says what was measured."""
LARGEST = 4 << 20
"""Bytes of a diff that are looked at. A larger one is generated code, or data, and nobody's duplicate."""

_LARGEST_FILE = 512 << 10
_SURE = 10
"""From this number of shared lines on, the files that have them do not matter."""
_FILE_START = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_BLANKS = b" \t\r\f\v"
_WORD = re.compile(rb"\w", re.ASCII)


@dataclass(frozen=True, slots=True)
class Overlap:
    """What two changes share.

    `score` from 0 to 1 is the greater of `ours` and `theirs`: how much of the lines that each adds the other has, too. `lines`
    are the shared ones as we add them, the most telling first; `paths` the files that both change. `whole`: all of the other
    diff could be read.
    """

    score: float
    ours: float
    theirs: float
    lines: tuple[str, ...]
    paths: tuple[str, ...]
    whole: bool = True

    @property
    def is_duplicate(self) -> bool:
        """Whether a person has to look before anything is opened."""
        return self.score >= BAR


def overlaps(objects: Objects, tree: TreeId, ours: Sequence[FileDiff], others: Sequence[bytes]) -> tuple[Overlap, ...]:
    """How much our change has in common with others, given as git's diffs that nobody vouches for.

    Args:
        objects: the store.
        tree: upstream's tree, in which common lines are counted.
        ours: the files of our change.
        others: the diffs of pull requests.

    Raises:
        StackError: the tree cannot be read.

    """
    sign = next((sign for sign in (b"+", b"-") if _Side.of(ours, sign).lines), b"+")
    own = _Side.of(ours, sign)
    sides = [_read(diff, sign) for diff in others]
    every = {line for side in (own, *(side for side, _ in sides)) for line in side.lines}
    common = _counted(objects, tree, every)
    return tuple(_overlap(own, side, common, whole) for side, whole in sides)


@dataclass(frozen=True, slots=True)
class _Side:
    """The lines that a change adds (or removes): packed as they are compared, how often, as they stand in the file, and where.

    `text` has those of a file on one line.
    """

    lines: Mapping[bytes, int]
    shown: Mapping[bytes, bytes]
    homes: Mapping[bytes, frozenset[str]]
    text: Mapping[str, bytes]
    paths: frozenset[str]

    @classmethod
    def of(cls, files: Sequence[FileDiff], sign: bytes) -> "_Side":
        count: Counter[bytes] = Counter()
        shown: dict[bytes, bytes] = {}
        homes: dict[bytes, frozenset[str]] = {}
        text: dict[str, list[bytes]] = {}
        for file in files:
            for line in _changed(file, sign):
                text.setdefault(file.path, []).append(line)
                packed = line.translate(None, _BLANKS)
                if history.telling(b"+" + line) is not None:
                    count[packed] += 1
                    shown.setdefault(packed, line)
                    homes[packed] = homes.get(packed, frozenset()) | {file.path}
        joined = {path: reflow.joined(b"\n".join(lines)) for path, lines in text.items()}
        return cls(count, shown, homes, joined, frozenset(name for file in files for name in (file.old, file.new) if name))

    def has(self, line: bytes, paths: Collection[str] | None = None) -> bool:
        """Whether it adds a line of another change, with whatever line breaks; with `paths`, whether there."""
        where = self.text if paths is None else [path for path in self.text if path in paths]
        if line in self.lines and not self.homes[line].isdisjoint(where):
            return True
        text = reflow.joined(line).rstrip(b",")
        return len(text) >= reflow.SHORT and any(text in self.text[path] for path in where)


def _changed(file: FileDiff, sign: bytes) -> Iterator[bytes]:
    return (line[1:] for hunk in file.hunks for line in hunk.lines if line[:1] == sign)


def _read(diff: bytes, sign: bytes) -> tuple[_Side, bool]:
    """What can be read of a diff, and whether that is all of it."""
    files: list[FileDiff] = []
    whole = len(diff) <= LARGEST
    for part in _FILE_START.split(diff[:LARGEST]):
        try:
            files += parse(part)
        except (DiffError, ValueError):
            whole = whole and not part.strip()
    return _Side.of(files, sign), whole


def _counted(objects: Objects, tree: TreeId, wanted: Collection[bytes]) -> Counter[bytes]:
    """How often lines stand in a tree, blanks left out."""
    found: Counter[bytes] = Counter()
    blobs = list(dict.fromkeys(_blobs(objects, tree)))
    objects.request(blobs)
    for blob in blobs:
        data = objects.read(blob)
        if len(data) <= _LARGEST_FILE:
            found.update(line for line in data.translate(None, _BLANKS).split(b"\n") if line in wanted)
    return found


def _blobs(objects: Objects, tree: str) -> Iterator[str]:
    for entry in objects.entries(tree).values():
        if entry.mode == FOLDER:
            yield from _blobs(objects, entry.id)
        elif entry.mode in FILES:
            yield entry.id


def _overlap(ours: _Side, theirs: _Side, common: Mapping[bytes, int], whole: bool) -> Overlap:
    shared = _shared(ours, theirs)
    back = _shared(theirs, ours)
    if len(shared) < _SURE:
        # In another file the same few lines are a sibling of the change, not the change.
        both = ours.paths & theirs.paths
        shared, back = _shared(ours, theirs, both), _shared(theirs, ours, both)
    own, other = _share(ours, shared, common), _share(theirs, back, common)
    both_ways = {line: theirs.shown[line] for line in back} | {line: ours.shown[line] for line in shared}
    telling = sorted(both_ways, key=lambda line: (_weight(line, common), len(line), line), reverse=True)
    return Overlap(
        score=max(own, other),
        ours=own,
        theirs=other,
        lines=tuple(both_ways[line].decode("utf-8", "replace").strip() for line in telling),
        paths=tuple(sorted(ours.paths & theirs.paths)),
        whole=whole,
    )


def _shared(one: _Side, other: _Side, paths: Collection[str] | None = None) -> frozenset[bytes]:
    """The lines of one change that the other has."""
    return frozenset(line for line in one.lines if other.has(line, paths))


def _share(side: _Side, shared: Iterable[bytes], common: Mapping[bytes, int]) -> float:
    total = math.fsum(_weight(line, common) * times for line, times in side.lines.items())
    return math.fsum(_weight(line, common) * side.lines[line] for line in shared) / total if total else 0.0


def _weight(line: bytes, common: Mapping[bytes, int]) -> float:
    """How much a line tells: one that stands in the tree `n` times already could have been anybody's."""
    return 1 / (1 + common.get(line, 0))
