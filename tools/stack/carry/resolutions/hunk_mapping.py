# SPDX-License-Identifier: Apache-2.0
"""Which lines of a file that a person resolved stand for which conflicting hunk."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stack.carry.resolutions.hunks import Hunk, Merge, lines

Lines = Sequence[str]


class Unclear(Exception):
    """There is no way to cut the file, or there are several that are as good; the message says which."""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to cut the file up to some line: where each hunk's lines begin and end, and how many of them are its own."""

    own: int
    spans: tuple[tuple[int, int], ...] = ()
    alone: bool = True
    """Whether no other way is as good."""


def cut(merge: Merge, resolved: Lines) -> list[Lines]:
    """The lines for each hunk: those between the lines that merge by themselves, which all have to be there.

    Such lines can be few and stand in a resolution, too (a blank line, a bracket). Then the way counts in which most lines
    resolve a hunk whose own versions have them.

    Raises:
        Unclear: lines outside the hunks are other ones, or two ways are as good.

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
    """For each line where the hunk can end, the best way to come there."""
    its = {line for version in (hunk.base, hunk.ours, hunk.theirs) for line in lines(version)}
    own = [0, *itertools.accumulate(line in its for line in body)]
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
