# SPDX-License-Identifier: Apache-2.0
"""Compare an edited copy of the sources with the pin: one patch for each top-level folder or file that differs."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.export import export
from stack.carry.importing.candidate import Candidate
from stack.model import document, paths
from stack.model import patch as patches
from stack.model.ids import CommitId
from stack.model.patch import Author
from stack.model.series import PatchRef
from stack.store.objects import FOLDER, SUBMODULE, Entry, Identity, Objects

_LARGEST = 256 * 2**20
_MOST = 500_000
_SKIPPED = frozenset({".git", ".hg", ".svn", ".bzr", ".pc"})
_LINK = 0o120000


def read(folder: Path, objects: Objects, base: CommitId, who: Author) -> tuple[list[Candidate], tuple[str, ...]]:
    """Return the patches, and notes; a top-level file or folder that the copy lacks altogether is taken as left out on purpose.

    Raises:
        StackError: It is no folder of sources, or has too many files, or one that is too large.

    """
    if not folder.is_dir():
        raise StackError(f"{folder} is not a folder", "name the copy of the sources")
    tree = objects.tree_of(base)
    top = objects.entries(tree)
    here = {entry.name for entry in os.scandir(folder)} - _SKIPPED
    if not here & top.keys():
        raise StackError(
            f"{folder} has nothing of the pinned sources", "name the folder that holds the upstream's top-level files"
        )
    lacking = sorted(top.keys() - here)
    count = counted(len(lacking), "top-level file or folder", "top-level files or folders")
    notes = [f"{folder.name} lacks {count} ({', '.join(lacking[:5])}): taken as left out on purpose"]
    commits, parent = [], base
    for name in sorted(here):
        if fault := paths.fault(os.fsencode(name)):
            notes.append(f"{name!r} is left out: it {fault}")
            continue
        changes = _changes(objects, top.get(name), folder / name, name)
        after = objects.replaced(objects.tree_of(parent), changes) if changes else objects.tree_of(parent)
        if after == objects.tree_of(parent):
            continue
        parent = objects.write_commit(after, (parent,), f"Local changes in {name}\n", Identity(who.name, who.mail, who.date))
        commits.append(parent)
    raws = export(objects, base, commits)
    return [_candidate(raw, who) for raw in raws], tuple(notes if lacking else notes[1:])


def _candidate(raw: bytes, who: Author) -> Candidate:
    parsed = patches.parse(raw, PatchRef("", "", ""), name="the copy")
    return Candidate(parsed.subject, parsed.subject, raw, who, parsed.message, parsed.diff, by_lines=False)


def _changes(objects: Objects, have: Entry | None, place: Path, path: str) -> dict[str, Entry | None]:
    """Return the differences of one file or folder."""
    changes: dict[str, Entry | None] = {}
    if have is not None and have.mode == SUBMODULE:
        return changes
    found = dict(_files(place, path))
    if len(found) > _MOST:
        raise StackError(f"{place} has more than {_MOST} files", "name the folder of the sources alone")
    before = dict(_entries(objects, have, path))
    for name, (mode, data) in found.items():
        old = before.get(name)
        entry = Entry(mode, objects.write_blob(data))
        if old != entry and (old is None or old.mode != SUBMODULE):
            changes[name] = entry
    for name, old in before.items():
        if name not in found and old.mode != SUBMODULE:
            changes[name] = None
    return changes


def _entries(objects: Objects, entry: Entry | None, path: str) -> Iterator[tuple[str, Entry]]:
    if entry is None:
        return
    if entry.mode != FOLDER:
        yield path, entry
        return
    for name, child in objects.entries(entry.id).items():
        yield from _entries(objects, child, f"{path}/{name}")


def _files(place: Path, path: str) -> Iterator[tuple[str, tuple[int, bytes]]]:
    """Yield the files at or below a place: mode and contents; no link is followed, special files are skipped."""
    mode = place.lstat().st_mode
    if stat.S_ISLNK(mode):
        yield path, (_LINK, os.fsencode(place.readlink()))
    elif stat.S_ISREG(mode):
        data = document.read_bytes(place, missing="run it again", largest=_LARGEST)
        yield path, (0o100755 if mode & 0o100 else 0o100644, data)
    elif stat.S_ISDIR(mode):
        for child in sorted(place.iterdir()):
            if child.name not in _SKIPPED:
                yield from _files(child, f"{path}/{child.name}")
