# SPDX-License-Identifier: Apache-2.0
"""Measure how much of a change another pull request already contains: the weighted share of added lines that both have.

A line's weight falls with the number of times it occurs in the upstream's tree: `return None` and a licence header prove
nothing. Line breaks and blanks are ignored because formatters change them. One change may be a part of the other, so the share
is computed in both directions, and the greater share is the score. A change that only removes lines is compared by the lines it
removes.
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
"""From this score on a person has to look; docs/export-pr.md shows the measurements behind it."""
LARGEST = 4 << 20
"""Bytes of a diff that are compared. A larger diff is generated code or data, never a duplicate."""

_LARGEST_FILE = 512 << 10
_SURE = 10
"""From this number of shared lines on, it does not matter which files they are in."""
_FILE_START = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_BLANKS = b" \t\r\f\v"
_WORD = re.compile(rb"\w", re.ASCII)


@dataclass(frozen=True, slots=True)
class Overlap:
    """The overlap of two changes.

    `ours` is the weighted share of our added lines that the other change has, `theirs` the share of its lines that ours has.
    `score` is the greater of both, from 0 to 1. `lines` are the shared lines as we add them, the heaviest first. `paths` are
    the files that both change. `whole` is true if the other diff was parsed completely.
    """

    score: float
    ours: float
    theirs: float
    lines: tuple[str, ...]
    paths: tuple[str, ...]
    whole: bool = True

    @property
    def is_duplicate(self) -> bool:
        """Return whether a person has to look before anything is opened."""
        return self.score >= BAR


def overlaps(objects: Objects, tree: TreeId, ours: Sequence[FileDiff], others: Sequence[bytes]) -> tuple[Overlap, ...]:
    """Compare our change with other changes, given as untrusted git diffs.

    Args:
        objects: the store.
        tree: upstream's tree; lines that are common there weigh less.
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
    """The lines that a change adds or removes.

    `lines` counts each line without its blanks; `shown` maps such a line to the line as it is in the file, and `homes` to its
    files. `text` holds all changed lines of a file joined to a single line, to find lines that a formatter has broken
    differently.
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
        """Return whether this side contains a line of another change, however it is broken; if `paths` is given, only in these files."""
        where = self.text if paths is None else [path for path in self.text if path in paths]
        if line in self.lines and not self.homes[line].isdisjoint(where):
            return True
        text = reflow.joined(line).rstrip(b",")
        return len(text) >= reflow.SHORT and any(text in self.text[path] for path in where)


def _changed(file: FileDiff, sign: bytes) -> Iterator[bytes]:
    return (line[1:] for hunk in file.hunks for line in hunk.lines if line[:1] == sign)


def _read(diff: bytes, sign: bytes) -> tuple[_Side, bool]:
    """Parse a diff as far as possible; the flag is true if all of it was parsed."""
    files: list[FileDiff] = []
    whole = len(diff) <= LARGEST
    for part in _FILE_START.split(diff[:LARGEST]):
        try:
            files += parse(part)
        except (DiffError, ValueError):
            whole = whole and not part.strip()
    return _Side.of(files, sign), whole


def _counted(objects: Objects, tree: TreeId, wanted: Collection[bytes]) -> Counter[bytes]:
    """Count how often lines occur in a tree, ignoring blanks."""
    counts: Counter[bytes] = Counter()
    blobs = list(dict.fromkeys(_blobs(objects, tree)))
    objects.request(blobs)
    for blob in blobs:
        data = objects.read(blob)
        if len(data) <= _LARGEST_FILE:
            counts.update(line for line in data.translate(None, _BLANKS).split(b"\n") if line in wanted)
    return counts


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
        # A few lines that occur in another file belong to a sibling of the change, not to the change.
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


def _shared(side: _Side, other: _Side, paths: Collection[str] | None = None) -> frozenset[bytes]:
    """Return the lines of a side that the other side has."""
    return frozenset(line for line in side.lines if other.has(line, paths))


def _share(side: _Side, shared: Iterable[bytes], common: Mapping[bytes, int]) -> float:
    total = math.fsum(_weight(line, common) * times for line, times in side.lines.items())
    return math.fsum(_weight(line, common) * side.lines[line] for line in shared) / total if total else 0.0


def _weight(line: bytes, common: Mapping[bytes, int]) -> float:
    """Return a line's weight: a line that occurs in the tree `n` times already proves little."""
    return 1 / (1 + common.get(line, 0))
