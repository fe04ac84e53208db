# SPDX-License-Identifier: Apache-2.0
"""Distinguish lines that upstream moved or rewrote from lines that it removed.

A group can merge cleanly into a file that already has its lines further down. Git sees no conflict and writes them twice. So a
clean merge alone does not prove that upstream took the group back; the later version must also have fewer of its lines.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from stack.carry import history
from stack.carry.history import Line
from stack.carry.unmerged_remainder import Group, split

_MOST = 0.5
"""A version keeps a group if more than this share of the group's lines are as frequent as before."""
_WORD = re.compile(rb"\b[A-Za-z_]\w{2,}")
_SAID = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'|^\s*(?:#(?!\s*(?:define|if|include))|//|\*).*|//.*")
"""Strings and comments: a word in them is not the code that it names."""


def told(group: Group) -> list[Line]:
    """Return the distinctive lines of a group."""
    return [line for line, _ in _telling(group)]


def _telling(group: Group) -> Iterator[tuple[Line, bytes]]:
    for raw in group.hunk.lines if group.hunk is not None else ():
        if (line := history.telling(raw)) is not None:
            yield line, raw[1:]


def keeps(group: Group, common: Collection[Line], was: bytes, now: bytes) -> bool:
    """Return whether a file still has most of a group: its added lines no less often than before, its removed ones no more.

    Lines are compared with their whitespace, since a group may only change the indentation.

    Args:
        group: the group.
        common: lines that are too common to count.
        was: the file before.
        now: the file after.

    """
    counts = [Counter(data.split(b"\n")) for data in (was, now)]
    own = [(line[0], text) for line, text in _telling(group) if line not in common]
    kept = sum(side * (counts[1][text] - counts[0][text]) >= 0 for side, text in own)
    return kept > _MOST * len(own)


def rewrites(group: Group, old: bytes, was: bytes, now: bytes) -> bool:
    """Return whether a change removes lines of a group and adds lines with all words of these, at least as often.

    At least one of these words must be new in the patch. Otherwise unrelated new lines of the file could have them all.

    Args:
        group: the group.
        old: its file before the patch.
        was: the file before the change.
        now: the file after it.

    """
    gone, new = Counter(split(was)), Counter(split(now))
    removed = _words(line for line in group.added if line in gone - new)
    known = _words(split(old))
    return any(word not in known for word in removed) and removed <= _words((new - gone).elements())


def _words(lines: Iterable[bytes]) -> Counter[bytes]:
    return Counter(word for line in lines for word in _WORD.findall(_SAID.sub(b"", line)))
