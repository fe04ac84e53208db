# SPDX-License-Identifier: Apache-2.0
"""Find a hunk's lines in another version of its file, next to lines that both versions have exactly once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stack.carry import history
from stack.carry.unmerged_remainder import split
from stack.model.diff import Hunk

_ANCHOR = 12
"""Upper bound of the lines next to a hunk that are used to find a unique place."""


@dataclass(frozen=True, slots=True)
class Text:
    """A file's lines, and the places (from 0) of each line, whatever its indentation."""

    lines: Sequence[bytes]
    at: Mapping[bytes, Sequence[int]]

    @classmethod
    def of(cls, data: bytes) -> "Text":
        """Split a file and index its lines."""
        lines = split(data)
        at: dict[bytes, list[int]] = {}
        for place, line in enumerate(lines):
            at.setdefault(line.strip(), []).append(place)
        return cls(lines, at)

    def places(self, block: Sequence[bytes]) -> list[int]:
        """Return the places (from 0) of a block of lines, whatever the indentation of the whole block."""
        wanted, size = _flush(block), len(block)
        first = min(range(size), key=lambda number: len(self.at.get(block[number].strip(), ())))
        starts = [place - first for place in self.at.get(block[first].strip(), ())]
        return [start for start in starts if start >= 0 and _flush(self.lines[start : start + size]) == wanted]


def stands(hunk: Hunk, was: Text, now: Text) -> bool:
    """Return whether a file has the lines of a hunk without context next to lines that both files have exactly once.

    The hunk and the lines next to it may be indented differently, if the indentation of all of them changes alike.
    """
    start = hunk.old_start - (1 if hunk.old_count else 0)
    end = start + hunk.old_count
    old = was.lines
    gone, new = old[start:end], [line[1:] + b"\n" for line in hunk.lines if line[:1] == b"+"]
    if not new and len(now.places(gone)) >= len(was.places(gone)):
        return False
    above, below = old[max(0, start - _ANCHOR) : start], old[end : end + _ANCHOR]
    return _beside(above, new, gone, was, now, below=False) or _beside(below, new, gone, was, now, below=True)


def _beside(side: Sequence[bytes], new: Sequence[bytes], gone: Sequence[bytes], was: Text, now: Text, *, below: bool) -> bool:
    """Return whether the new lines of a hunk follow the lines above it, or precede those below it, at a unique place."""
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


def _flush(lines: Sequence[bytes]) -> list[bytes]:
    """Remove the common indentation and the line ends."""
    inked = [line for line in lines if line.strip()]
    margin = min((line[: len(line) - len(line.lstrip(b" \t"))] for line in inked), key=len, default=b"")
    shared = len(margin) if all(line.startswith(margin) for line in inked) else 0
    return [line[shared:].rstrip(b"\n") if line.strip() else line.rstrip(b"\n") for line in lines]
