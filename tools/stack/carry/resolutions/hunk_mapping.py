# SPDX-License-Identifier: Apache-2.0
"""Map the lines of a resolved file to the conflicting hunks that they resolve."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stack.carry.resolutions.hunks import Hunk, Merge, lines

Lines = Sequence[str]


class Unclear(Exception):
    """Raised when the file cannot be split among the hunks, or in several equally good ways; the message says which."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to split the file up to some line. `spans`: each hunk's lines; `own`: how many of these its versions have."""

    own: int
    spans: tuple[tuple[int, int], ...] = ()
    alone: bool = True
    """Whether all other ways are worse."""


def cut(merge: Merge, resolved: Lines) -> list[Lines]:
    """Return the lines of each hunk: those between the cleanly merged lines, which must all be there.

    The cleanly merged lines can be few and also occur in a resolution (a blank line, a bracket). Then choose the split in which
    most lines go to a hunk whose own versions have them.

    Raises:
        Unclear: lines outside the hunks were changed, or two splits are equally good.

    """
    head, *middle, tail = merge.shared
    end = len(resolved) - len(tail)
    if end < len(head) or tuple(resolved[: len(head)]) != head or tuple(resolved[end:]) != tail:
        raise Unclear("lines outside the conflicts were changed, too")
    body = resolved[len(head) : end]
    begins = {0: _Way(0)}
    for hunk, shared in zip(merge.hunks, [*middle, ()], strict=True):
        ends = list(_places(shared, body)) if shared else [len(body)]
        begins = {stop + len(shared): way for stop, way in _ways(begins, ends, hunk, body)}
    if not begins:
        raise Unclear("lines outside the conflicts were changed, too")
    [best] = begins.values()
    if not best.alone:
        raise Unclear("it cannot be told which lines resolve which conflict")
    return [body[start:stop] for start, stop in best.spans]


def _places(part: Lines, body: Lines) -> Iterator[int]:
    first = part[0]
    for place, line in enumerate(body):
        if line == first and tuple(body[place : place + len(part)]) == part:
            yield place


def _ways(begins: dict[int, _Way], ends: Sequence[int], hunk: Hunk, body: Lines) -> Iterator[tuple[int, _Way]]:
    """Yield, for each line where the hunk can end, the best split up to there."""
    versions = {line for version in (hunk.base, hunk.ours, hunk.theirs) for line in lines(version)}
    # own[n]: how many of the first n lines the hunk's versions have.
    own = [0, *itertools.accumulate(line in versions for line in body)]
    waiting = sorted(begins.items())
    best: tuple[int, int, _Way] | None = None
    for stop in ends:
        while waiting and waiting[0][0] <= stop:
            start, way = waiting.pop(0)
            gain = way.own - own[start]
            if best is None or gain > best[0]:
                best = gain, start, way
            elif gain == best[0]:
                best = gain, start, _Way(way.own, way.spans, alone=False)
        if best is not None:
            gain, start, way = best
            yield stop, _Way(gain + own[stop], (*way.spans, (start, stop)), way.alone)
