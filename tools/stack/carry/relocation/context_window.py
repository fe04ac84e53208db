# SPDX-License-Identifier: Apache-2.0
"""Compare places with the lines that a hunk changes (its core) and the lines around them (together: its image).

There are two scores, both in distinctive lines. `strict` counts the lines of the image that are at the place in one run with
the core; it is the score of a candidate. `loose` counts the lines of the image anywhere near the place; it is the score of a
rival, so that similar code that was edited since still counts as a rival.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

WINDOW = 20
"""Lines on each side of the core that count, about a function. With more, neighbouring moved code causes false matches."""
STRONG = 6
"""Distinctive lines that a place needs in one run."""
BESIDE = 2
"""Distinctive lines that a place needs on each side if the core has none (a hunk that only inserts)."""

_WORD = re.compile(rb"\w")
# Comments, imports, licences: unrelated files have the same ones.
_SILENT = re.compile(rb"\s*(#(?!\s*define\b)|//|/?\*|import\b|from\b|using\b|export\b|\"\"\")")

Shift = tuple[bytes, bytes]
"""The whitespace that a re-indented line loses at its start, and the whitespace that it gets there."""


def tells(line: bytes) -> bool:
    """Return whether a line is distinctive: it has at least three word characters, and is not a comment or an import."""
    return len(_WORD.findall(line)) >= 3 and not _SILENT.match(line)


@dataclass(frozen=True, slots=True)
class Place:
    """A place that has a core's lines; `first` is its line (from 0). `run`: the image's lines that are there in one run with it."""

    path: str
    first: int
    shift: Shift
    run: range
    fits: bool
    strict: int
    loose: int


@dataclass(frozen=True)
class Image:
    """A core (`first` to `end` in `lines`) with the lines around it; `offset` is the place of `lines` in the file."""

    lines: tuple[bytes, ...]
    first: int
    end: int
    offset: int
    is_top: bool
    is_bottom: bool

    @classmethod
    def of(cls, lines: tuple[bytes, ...], span: tuple[int, int]) -> "Image":
        """Make the image of a span of lines of a file."""
        low, high = max(0, span[0] - WINDOW), min(len(lines), span[1] + WINDOW)
        return cls(lines[low:high], span[0] - low, span[1] - low, low, low == span[0], high == span[1])

    @cached_property
    def telling(self) -> tuple[bool, ...]:
        """Return for each line whether it is distinctive."""
        return tuple(tells(line) for line in self.lines)

    @cached_property
    def own(self) -> int:
        """Count the distinctive lines of the core."""
        return sum(self.telling[self.first : self.end])

    @cached_property
    def anchors(self) -> tuple[int, ...]:
        """Return the lines to search for: the longest distinctive line of the core, or else the nearest on each side."""
        core = [number for number in range(self.first, self.end) if self.telling[number]]
        if core:
            return (max(core, key=lambda number: len(self.lines[number].strip())),)
        above = [number for number in range(self.first - 1, -1, -1) if self.telling[number]]
        below = [number for number in range(self.end, len(self.lines)) if self.telling[number]]
        return (*above[:1], *below[:1])

    @cached_property
    def _bag(self) -> Counter[bytes]:
        return Counter(line.strip() for line, telling in zip(self.lines, self.telling, strict=True) if telling)

    def place(self, path: str, there: Sequence[bytes], anchor: int, at: int) -> Place | None:
        """Return the place in a file whose line `at` is the image's line `anchor`; None if the core's lines are not there."""
        shift = _shift(self.lines[anchor], there[at])
        first = at - anchor + self.first
        size = self.end - self.first
        if shift is None or first < 0 or first + size > len(there):
            return None
        if not all(_same(self.lines[self.first + step], there[first + step], shift) for step in range(size)):
            return None
        low, high = self.first, self.end
        start, stop = first, first + size
        while low and start and _same(self.lines[low - 1], there[start - 1], shift):
            low, start = low - 1, start - 1
        while high < len(self.lines) and stop < len(there) and _same(self.lines[high], there[stop], shift):
            high, stop = high + 1, stop + 1
        near = there[max(0, first - WINDOW) : first + size + WINDOW]
        loose = (self._bag & Counter(line.strip() for line in near)).total()
        strict = sum(self.telling[low:high])
        return Place(path, first, shift, range(low, high), self._fits(low, high, start == 0, stop == len(there)), strict, loose)

    def _fits(self, low: int, high: int, begins: bool, ends: bool) -> bool:
        """Return whether a run has enough distinctive lines, and joins the core on both sides.

        Like for git's merge, the line next to the core must be the same on each side, or be the file's begin or end.
        """
        above, below = sum(self.telling[low : self.first]), sum(self.telling[self.end : high])
        if above + self.own + below < STRONG:
            return False
        if not self.own:
            return above >= BESIDE and below >= BESIDE
        joined_above = low < self.first or (self.first == 0 and self.is_top) or begins
        joined_below = high > self.end or (self.end == len(self.lines) and self.is_bottom) or ends
        return joined_above and joined_below


def _shift(line: bytes, there: bytes) -> Shift | None:
    old, new = (text[: len(text) - len(text.lstrip(b" \t"))] for text in (line, there))
    if new.startswith(old):
        return b"", new[len(old) :]
    return (old[len(new) :], b"") if old.startswith(new) else None


def shifted(line: bytes, shift: Shift) -> bytes | None:
    """Re-indent a line; None if it does not begin with the whitespace that it should lose."""
    if not line.strip():
        return line
    return shift[1] + line[len(shift[0]) :] if line.startswith(shift[0]) else None


def _same(line: bytes, there: bytes, shift: Shift) -> bool:
    return (not there.strip()) if not line.strip() else shifted(line, shift) == there
