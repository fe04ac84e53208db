# SPDX-License-Identifier: Apache-2.0
"""Tell lines that upstream moved or wrote anew from lines that it took back.

A group can merge cleanly into a file that has its lines already, a few lines further down: git sees no conflict and writes them
twice. So a clean merge alone does not show that upstream took the group back: the version after that has fewer of its lines.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from stack.carry import history
from stack.carry.history import Line
from stack.carry.unmerged_remainder import Group, split

_MOST = 0.5
"""A version that has fewer than this share of a group's lines does not have the group."""
_WORD = re.compile(rb"\b[A-Za-z_]\w{2,}")
_SAID = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'|^\s*(?:#(?!\s*(?:define|if|include))|//|\*).*|//.*")
"""Strings and comments: a word in them is not the code that it names."""


def told(group: Group) -> list[Line]:
    """The telling lines of a group."""
    return [line for line, _ in _telling(group)]


def _telling(group: Group) -> Iterator[tuple[Line, bytes]]:
    for raw in group.hunk.lines if group.hunk is not None else ():
        if (line := history.telling(raw)) is not None:
            yield line, raw[1:]


def keeps(group: Group, common: Collection[Line], was: bytes, now: bytes) -> bool:
    """Whether most of a group's lines are there as often as before: added ones not less often, removed ones not more often.

    Lines count with their blanks: a group may only indent them.

    Args:
        group: the group.
        common: lines that say nothing.
        was: its file before.
        now: its file by now.

    """
    counts = [Counter(data.split(b"\n")) for data in (was, now)]
    own = [(line[0], text) for line, text in _telling(group) if line not in common]
    kept = sum(side * (counts[1][text] - counts[0][text]) >= 0 for side, text in own)
    return kept > _MOST * len(own)


def rewrites(group: Group, old: bytes, was: bytes, now: bytes) -> bool:
    """Whether the lines that a change adds have all the words of a group's lines that it removes, as often.

    One of these words has to be the patch's own. Else any other new line of the file could have them.

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
