# SPDX-License-Identifier: Apache-2.0
"""Find lines that a patch adds to a function or class that upstream has added to another place in it: a hoisted call.

Git merges such a patch cleanly, and then the call is there twice. This is only a hint: a person decides whether both are needed.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stack.carry import history
from stack.carry.unmerged_remainder import Group, groups, split
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects

_PYTHON = re.compile(rb"(?P<indent>[ \t]*)(?:async[ \t]+def|def|class)\b")
_OTHER = re.compile(rb"[A-Za-z_$]")


class Twice(NamedTuple):
    """A line (from 1) of a file that a patch adds a second time; `definition` is the first line of the enclosing definition."""

    path: str
    line: int
    definition: str


def find(objects: Objects, before: TreeId, ours: TreeId, after: TreeId) -> Iterator[Twice]:
    """Find lines of the new base that a patch adds again to the same definition, and that the old base does not have there."""
    for group in groups(objects, before, after):
        old, new = _lines(objects, group.old), _lines(objects, group.new)
        have = _lines(objects, objects.entry(ours, group.path))
        if group.hunk is None or not have:
            continue
        for number, text in group.hunk.added():
            if history.telling(b"+" + text) is None:
                continue
            definition = _definition(group, new, number - 1)
            place = next(_places(group, have, text, definition), None)
            if definition and place is not None and next(_places(group, old, text, definition), None) is None:
                yield Twice(group.path, place + 1, definition.decode("utf-8", "replace").strip())


def _lines(objects: Objects, entry: Entry | None) -> list[bytes]:
    return split(objects.read(entry.id)) if entry is not None and entry.mode in FILES else []


def _places(group: Group, lines: Sequence[bytes], text: bytes, definition: bytes) -> Iterator[int]:
    """Yield the places (from 0) of a line in a definition, whatever its indentation."""
    for place, line in enumerate(lines):
        if line.strip() == text.strip() and _definition(group, lines, place) == definition:
            yield place


def _definition(group: Group, lines: Sequence[bytes], place: int) -> bytes:
    """Return the first line of the definition that encloses a line; empty if there is none."""
    line = lines[place]
    indent = len(line) - len(line.lstrip())
    for above in reversed(lines[:place]):
        if group.path.endswith((".py", ".pyi")):
            header = _PYTHON.match(above)
            if header is not None and len(header["indent"]) < indent:
                return above.strip()
        elif _OTHER.match(above):
            return above.strip()
    return b""
