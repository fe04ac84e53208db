# SPDX-License-Identifier: Apache-2.0
"""What a person changed beside a conflict: where code has gone to another file, its conflict is resolved there."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stack.carry.resolutions.hunks import AROUND, lines


@dataclass(frozen=True, slots=True)
class Beside:
    """Lines of a file without a conflict and what replaces them; with those around them they stand there once."""

    path: str
    before: str
    old: str
    new: str
    after: str


def changes(path: str, merged: str, resolved: str) -> tuple[Beside, ...] | None:
    """How a file that merged by itself became what a person made of it; None where the places cannot be told by their lines."""
    was, now = lines(merged), lines(resolved)
    found = tuple(_grouped(path, was, now))
    return found if applied(merged, found) == resolved else None


def applied(text: str, found: Iterable[Beside]) -> str | None:
    """A file's text with these changes; None where one has no place there, or several."""
    for one in found:
        whole, joined = lines(text), lines(one.before + one.old + one.after)
        places = [at for at in range(len(whole) - len(joined) + 1) if whole[at : at + len(joined)] == joined] if joined else []
        if len(places) != 1:
            return None
        begin = places[0] + len(lines(one.before))
        text = "".join([*whole[:begin], one.new, *whole[begin + len(lines(one.old)) :]])
    return text


def _grouped(path: str, was: Sequence[str], now: Sequence[str]) -> Iterator[Beside]:
    matcher = difflib.SequenceMatcher(None, was, now, autojunk=False)
    for group in matcher.get_grouped_opcodes(AROUND):
        changed = [code for code in group if code[0] != "equal"]
        first, last = changed[0], changed[-1]
        begin, end = first[1], last[2]
        yield Beside(
            path,
            before="".join(was[max(begin - AROUND, 0) : begin]),
            old="".join(was[begin:end]),
            new="".join(now[first[3] : last[4]]),
            after="".join(was[end : end + AROUND]),
        )
