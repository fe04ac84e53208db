# SPDX-License-Identifier: Apache-2.0
"""What is searched: the lines that a hunk changes, with the lines around them; and how well a place is like it.

Two measures, both in telling lines. `strict` counts those that stand in one run with the core, at the place as in the image: what
speaks for a place. `loose` counts those of the image that stand anywhere near the place: what speaks for a rival, so that code
which is like the hunk's but was edited since still is one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

WINDOW = 20
"""Lines on each side of the core that count: as much as a function; with more, a place is like another because of what else is moved."""
STRONG = 6
"""Telling lines that a place needs in one run."""
BESIDE = 2
"""Telling lines that it needs on each side where the core has none itself: a hunk that only inserts."""

_WORD = re.compile(rb"\w")
# Comments, imports, licences: the same ones stand in files that have nothing to do with each other.
_SILENT = re.compile(rb"\s*(#(?!\s*define\b)|//|/?\*|import\b|from\b|using\b|export\b|\"\"\")")

Shift = tuple[bytes, bytes]
"""Blanks that a re-indented line loses and gets at its start."""


def tells(line: bytes) -> bool:
    """Whether a line says something of the place where it stands."""
    return len(_WORD.findall(line)) >= 3 and not _SILENT.match(line)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a core stands, as line numbers from 0. `run` are the image's lines that stand there in one run with it."""

    path: str
    first: int
    shift: Shift
    run: range
    fits: bool
    strict: int
    loose: int


@dataclass(frozen=True)
class Image:
    """A core (`first` to `end` in `lines`) with its window; `offset` is the window's first line in its file."""

    lines: tuple[bytes, ...]
    first: int
    end: int
    offset: int
    is_top: bool
    is_bottom: bool

    @classmethod
    def of(cls, lines: tuple[bytes, ...], span: tuple[int, int]) -> "Image":
        """The image of some lines of a file."""
        low, high = max(0, span[0] - WINDOW), min(len(lines), span[1] + WINDOW)
        return cls(lines[low:high], span[0] - low, span[1] - low, low, low == span[0], high == span[1])

    @cached_property
    def telling(self) -> tuple[bool, ...]:
        """Of each line."""
        return tuple(tells(line) for line in self.lines)

    @cached_property
    def own(self) -> int:
        """How many lines of the core are telling."""
        return sum(self.telling[self.first : self.end])

    @cached_property
    def anchors(self) -> tuple[int, ...]:
        """Lines of which one stands at every place that counts: the core's longest, or the next ones on both sides."""
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
        """The place in a file where an anchor of the image stands at line `at`; None where the core does not stand there."""
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
        """Whether a run is strong enough. Beside the core the next line must be the same, as for git's merge, or the file's end."""
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
    """A line indented otherwise; None where it has not the blanks that it should lose."""
    if not line.strip():
        return line
    return shift[1] + line[len(shift[0]) :] if line.startswith(shift[0]) else None


def _same(line: bytes, there: bytes, shift: Shift) -> bool:
    return (not there.strip()) if not line.strip() else shifted(line, shift) == there
