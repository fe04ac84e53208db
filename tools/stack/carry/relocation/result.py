# SPDX-License-Identifier: Apache-2.0
"""Build the files after a relocation."""

import ast
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from stack.carry.relocation.context_window import shifted
from stack.carry.relocation.errors import Doubt
from stack.carry.relocation.hunks import Left, Triple, merged
from stack.carry.relocation.search import RelocatedHunk
from stack.model.ids import TreeId
from stack.store.objects import Entry, Objects

_PYTHON = (".py", ".pyi")
# In other files, indentation may be text, or syntax that cannot be checked here: a re-indented line is another line there.
_INDENTED_FREELY = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", *_PYTHON)


@dataclass(frozen=True, slots=True)
class Move:
    """A relocated hunk: the first line that it changes (from 1), in the old base and in the new base."""

    old_path: str
    old_line: int
    new_path: str
    new_line: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """The files to replace on the new base, and the relocated hunks.

    `changes` has all paths in conflict (None: the file is gone on the new base, and stays so) and the files that hunks moved to.
    If the patch also changes such a file itself, the entry has both changes.
    """

    changes: Mapping[str, Entry | None]
    moves: tuple[Move, ...]


def build(
    objects: Objects, trees: tuple[TreeId, TreeId, TreeId], left: Sequence[Left], found: Sequence[RelocatedHunk]
) -> Relocation:
    """Apply the hunks at their new places; `trees` are the old base, the new base, and the old base with the patch.

    Raises:
        Doubt: hunks overlap, the result cannot be parsed, or conflicts with another change of the patch.

    """
    changes: dict[str, Entry | None] = {file.change.path: file.entry for file in left}
    by_target: dict[str, list[RelocatedHunk]] = defaultdict(list)
    for each in found:
        by_target[each.place.path].append(each)
    for path, hunks in by_target.items():
        entry = objects.entry(trees[1], path)
        assert entry is not None
        moved = Entry(entry.mode, objects.write_blob(_applied(objects.read(entry.id), path, hunks)))
        own = changes[path] if path in changes else _own(objects, trees, path, entry)
        changes[path] = _one(objects, (entry, own, moved)) if own is not None and own != entry else moved
    return Relocation(changes, tuple(_move(each) for each in found))


def _own(objects: Objects, trees: tuple[TreeId, TreeId, TreeId], path: str, entry: Entry) -> Entry:
    """Return the target file with the patch's own change to it."""
    old, new = objects.entry(trees[0], path), objects.entry(trees[2], path)
    if old == new:
        return entry
    if old is None or new is None:
        raise Doubt
    return _one(objects, (old, entry, new))


def _one(objects: Objects, triple: Triple) -> Entry:
    entry = merged(objects, [triple])[0]
    if entry is None:
        raise Doubt
    return entry


def _applied(data: bytes, path: str, hunks: Sequence[RelocatedHunk]) -> bytes:
    """Apply hunks to a file, from the last to the first, so that earlier line numbers stay valid."""
    lines = data.split(b"\n")
    below = len(lines) + 1
    for each in sorted(hunks, key=lambda hunk: hunk.place.first, reverse=True):
        first = each.place.first
        end = first + each.core.old[1] - each.core.old[0]
        if end >= below:
            raise Doubt
        below = first
        lines[first:end] = _indented(each, path)
    result = b"\n".join(lines)
    is_reindented = any(any(each.place.shift) for each in hunks)
    if PurePosixPath(path).suffix.lower() in _PYTHON and not _parses(result) and (is_reindented or _parses(data)):
        raise Doubt
    return result


def _indented(found: RelocatedHunk, path: str) -> list[bytes]:
    if any(found.place.shift) and PurePosixPath(path).suffix.lower() not in _INDENTED_FREELY:
        raise Doubt
    lines = []
    for line in found.change.after[slice(*found.core.new)]:
        new = shifted(line, found.place.shift)
        if new is None:
            raise Doubt
        lines.append(new)
    return lines


def _parses(data: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _move(found: RelocatedHunk) -> Move:
    return Move(found.change.path, found.core.old[0] + 1, found.place.path, found.place.first + 1)
