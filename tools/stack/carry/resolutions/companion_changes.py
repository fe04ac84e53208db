# SPDX-License-Identifier: Apache-2.0
"""Changes to files without conflicts that belong to a resolution, such as in the file to which conflicting code has moved."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stack.carry.resolutions.hunks import AROUND, lines


@dataclass(frozen=True, slots=True)
class Beside:
    """A change to a file without conflicts: `old` is replaced by `new`; with the lines around it, `old` is unique in the file."""

    path: str
    before: str
    old: str
    new: str
    after: str


def changes(path: str, merged: str, resolved: str) -> tuple[Beside, ...] | None:
    """Return a person's changes to a file that merged cleanly; None if the lines around a change are not unique."""
    was, now = lines(merged), lines(resolved)
    grouped = tuple(_grouped(path, was, now))
    return grouped if applied(merged, grouped) == resolved else None


def applied(text: str, found: Iterable[Beside]) -> str | None:
    """Apply changes to a file's text; None if the lines of one do not occur there, or occur several times."""
    for change in found:
        whole, joined = lines(text), lines(change.before + change.old + change.after)
        places = [at for at in range(len(whole) - len(joined) + 1) if whole[at : at + len(joined)] == joined] if joined else []
        if len(places) != 1:
            return None
        begin = places[0] + len(lines(change.before))
        text = "".join([*whole[:begin], change.new, *whole[begin + len(lines(change.old)) :]])
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
