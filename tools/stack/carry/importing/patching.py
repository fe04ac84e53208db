# SPDX-License-Identifier: Apache-2.0
"""Apply the changes of a plain diff to a tree as `patch` does, but in memory and without fuzz."""

import re
from collections.abc import Callable, Sequence

from stack.carry.apply import Misfit, below_a_file
from stack.carry.importing.plain import Section
from stack.model import paths
from stack.model.diff import Hunk, substituted
from stack.model.ids import TreeId
from stack.store.objects import FILES, FOLDER, Entry, Objects

_LINK = 0o120000
_Standing = Callable[[str], Entry | None]


def stripped(name: str, level: int) -> str | None:
    """Return a name without its first components, as `patch -p` removes them; None if it has too few."""
    parts = [part for part in name.split("/") if part not in ("", ".")] if level or name.startswith("./") else name.split("/")
    return "/".join(parts[level:]) or None


def level_of(objects: Objects, tree: TreeId, found: Sequence[Section]) -> int:
    """Find the number of leading path components to remove: the level at which most of the files exist.

    If no level has one of the files (all are new), the level at which most of their folders exist.
    """

    def fits(level: int) -> tuple[int, int, bool]:
        existing = folders = 0
        for section in found:
            names = [path for name in (section.old, section.new) if name is not None and (path := stripped(name, level))]
            existing += any(_is_file(objects, tree, path) for path in names)
            folders += any(_has_folder(objects, tree, path) for path in names)
        return existing, folders if not existing else 0, level == 1

    return max(range(6), key=lambda level: (*fits(level), -level))


def _is_file(objects: Objects, tree: TreeId, path: str) -> bool:
    if fault(path):
        return False
    entry = objects.entry(tree, path)
    return entry is not None and entry.mode != FOLDER


def _has_folder(objects: Objects, tree: TreeId, path: str) -> bool:
    folder = path.rpartition("/")[0]
    return bool(folder) and not fault(path) and objects.entry(tree, folder) is not None


def fault(path: str) -> str:
    """Return why a path may not stand in a tree; empty if it may."""
    return paths.fault(path.encode("utf-8", "surrogateescape"))


def patched(data: bytes, hunks: Sequence[Hunk]) -> bytes | int:
    """Apply hunks to a file: at their lines, or else at the nearest place where their old lines stand, without fuzz.

    Return the first line of a hunk that does not fit.
    """
    exactly = _at_lines(data, hunks)
    if isinstance(exactly, bytes):
        return exactly
    moved = substituted(data, hunks)
    if moved is not None:
        return moved
    failing = next((each for count, each in enumerate(hunks, 1) if substituted(data, hunks[:count]) is None), hunks[0])
    return failing.old_start


def _at_lines(data: bytes, hunks: Sequence[Hunk]) -> bytes | None:
    lines = data.splitlines(keepends=True) if b"\r" not in data else re.findall(rb"[^\n]*\n|[^\n]+", data)
    result: list[bytes] = []
    done = 0
    for each in hunks:
        first = each.old_start - (1 if each.old_count else 0)
        old, new, _ = each.sides()
        if first < done or b"".join(lines[first : first + each.old_count]) != old:
            return None
        result += [*lines[done:first], new]
        done = first + each.old_count
    if done < len(lines) and result and not result[-1].endswith(b"\n") and result[-1]:
        return None
    return b"".join([*result, *lines[done:]])


def applied(objects: Objects, tree: TreeId, found: Sequence[Section], level: int) -> TreeId | Misfit:
    """Return the tree after the changes, or the first one that does not fit."""
    changes: dict[str, Entry | None] = {}

    def standing(path: str) -> Entry | None:
        return changes[path] if path in changes else objects.entry(tree, path)

    for section in found:
        names = [path for name in (section.old, section.new) if name and (path := stripped(name, level)) is not None]
        if section.index and not any(standing(path) for path in names if not fault(path)):
            names += [path for path in [stripped(section.index, level)] if path is not None]
        outcome = _changed(objects, section, names, standing)
        if isinstance(outcome, Misfit):
            return outcome
        changes |= outcome
    changes = {path: entry for path, entry in changes.items() if objects.entry(tree, path) != entry}
    if not changes:
        return Misfit("", None, "it changes nothing: the tree has it already")
    below = below_a_file(changes)
    if below is not None:
        return Misfit(below, None, "is below a file of the same patch")
    gone = {path: None for path, entry in changes.items() if entry is None}
    rest = objects.replaced(tree, gone) if gone else tree
    blocked = next((path for path, entry in changes.items() if entry is not None and _blocked(objects, rest, path)), None)
    return objects.replaced(tree, changes) if blocked is None else Misfit(blocked, None, "a file or folder is in its way")


def _blocked(objects: Objects, tree: TreeId, path: str) -> bool:
    """Return whether a folder stands at the path, or a file where one of its folders has to be."""
    here = objects.entry(tree, path)
    parts = path.split("/")
    above = (objects.entry(tree, "/".join(parts[:depth])) for depth in range(1, len(parts)))
    return (here is not None and here.mode == FOLDER) or any(entry is not None and entry.mode != FOLDER for entry in above)


def _changed(objects: Objects, section: Section, names: Sequence[str], standing: _Standing) -> dict[str, Entry | None] | Misfit:
    """Return the files that one section changes."""
    shown = section.new or section.old or ""
    bad = next((path for path in names if fault(path)), None)
    if bad is not None or not names:
        return Misfit(shown[:200], None, f"its path {fault(bad)}" if bad else "its path has too few folders")
    if section.binary or section.copied:
        return Misfit(shown, None, "it is binary, or copies a file, and only git can apply it")
    there = [path for path in names if (entry := standing(path)) is not None and entry.mode != FOLDER]
    source = names[0] if section.renamed else _best(there)
    target = names[-1] if section.renamed or not there else source
    entry = standing(source) if there else None
    reason = _unfit(objects, section, entry)
    if reason:
        return Misfit(target, None, reason)
    after = patched(objects.read(entry.id) if entry is not None else b"", section.hunks)
    if isinstance(after, int):
        return Misfit(target, after, "the lines that it changes are not there")
    if section.deleted and not after:
        return {source: None}
    mode = section.new_mode or (entry.mode if entry is not None else FILES[0])
    moved: dict[str, Entry | None] = {source: None} if section.renamed else {}
    return moved | {target: Entry(mode, objects.write_blob(after))}


def _unfit(objects: Objects, section: Section, entry: Entry | None) -> str:
    """Return why a section cannot change this entry; empty if its hunks may be tried."""
    if entry is None:
        return "" if section.created or _adds_only(section.hunks) else "is not there"
    if section.created and objects.read(entry.id):
        return "already exists"
    regular = entry.mode in (*FILES, _LINK) and (section.new_mode in (None, *FILES, _LINK))
    return "" if regular else "is not a file"


def _adds_only(hunks: Sequence[Hunk]) -> bool:
    return len(hunks) == 1 and hunks[0].old_start == 0 == hunks[0].old_count


def _best(existing: Sequence[str]) -> str:
    """Choose a file as `patch` does: fewest components, then the shortest base name, then the shortest name."""
    return min(existing, key=lambda path: (path.count("/"), len(path.rpartition("/")[2]), len(path)), default="")
