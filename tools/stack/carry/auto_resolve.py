# SPDX-License-Identifier: Apache-2.0
"""Conflicts that need no person: one has resolved them before, the files' structure shows that they are none, or the code moved."""

from collections.abc import Sequence
from dataclasses import dataclass

from stack.carry import structure
from stack.carry.merge import Merged
from stack.carry.outcome import Outcome
from stack.carry.relocation import relocate
from stack.carry.resolutions import Resolution, Resolutions, applied, hunks
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects


@dataclass(frozen=True, slots=True)
class Rescued:
    """The tree without a conflict, and how it came about; or, where one is left, no tree and what is known about it."""

    tree: TreeId | None
    outcome: Outcome
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a conflict, resolved or (no entry) left to the next way."""

    entry: Entry | None
    evidence: tuple[str, ...]
    used: tuple[Resolution, ...] = ()


def rescue(
    objects: Objects, known: Resolutions | None, before: TreeId, ours: TreeId, theirs: TreeId, merged: Merged
) -> Rescued:
    """Try every way on a merge that is in conflict; all its files have to come out of it."""
    paths = dict.fromkeys(conflict.path for conflict in merged.conflicts)
    files = {path: _by_content(objects, known, before, ours, theirs, path) for path in paths}
    evidence = tuple(said for file in files.values() for said in file.evidence)
    changes: dict[str, Entry | None] = {path: file.entry for path, file in files.items() if file.entry is not None}
    left = [path for path in paths if path not in changes]
    beside = _beside(objects, merged.tree, [one for file in files.values() for one in file.used])
    if beside is None:
        return Rescued(None, Outcome.CONFLICT, (*evidence, "what was changed beside the conflict then has no place there"))
    if not left:
        return Rescued(objects.replaced(merged.tree, changes | beside), Outcome.RESOLVED, evidence)
    moved = relocate(objects, before, ours, theirs, left)
    if moved is None or beside:
        return Rescued(None, Outcome.CONFLICT, evidence)
    merged_paths = {path for path, _, _ in objects.difference(ours, merged.tree)} - set(left)
    if merged_paths & moved.changes.keys():
        # A file that the patch changes itself, too: the two changes would have to be put together.
        return Rescued(None, Outcome.CONFLICT, evidence)
    changes |= {path: objects.entry(ours, path) for path in left} | dict(moved.changes)
    said = tuple(f"{move.old_path}:{move.old_line} is now {move.new_path}:{move.new_line}" for move in moved.moves)
    return Rescued(objects.replaced(merged.tree, changes), Outcome.RELOCATED, (*evidence, *said))


def _beside(objects: Objects, merged: TreeId, used: Sequence[Resolution]) -> dict[str, Entry | None] | None:
    """The files that these resolutions change beside their conflicts; None where a change has no place in its file, or several."""
    found: dict[str, Entry | None] = {}
    asked = [one for resolution in used for one in resolution.beside]
    for path in dict.fromkeys(one.path for one in asked):
        entry = objects.entry(merged, path)
        text = hunks.text(objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
        changed = applied(text, [one for one in asked if one.path == path]) if text is not None else None
        if entry is None or changed is None:
            return None
        found[path] = Entry(entry.mode, objects.write_blob(hunks.encoded(changed)))
    return found


def _by_content(objects: Objects, known: Resolutions | None, before: TreeId, ours: TreeId, theirs: TreeId, path: str) -> _File:
    """A file by its three versions: a known resolution first, since a person made it."""
    entries = [objects.entry(tree, path) for tree in (before, ours, theirs)]
    there = [entry for entry in entries if entry is not None and entry.mode in FILES]
    if len(there) < len(entries):
        return _File(None, ())
    base, mine, yours = (objects.read(entry.id) for entry in there)
    mode = there[2].mode if there[2].mode != there[0].mode else there[1].mode
    found = known.apply(path, base, mine, yours) if known is not None else None
    if found is not None and found.data is not None:
        said = tuple(f"resolution {one.key} made on {one.rung}" for one in found.used)
        return _File(Entry(mode, objects.write_blob(found.data)), said, found.used)
    structured = structure.resolve(path, base, mine, yours)
    if structured is not None:
        return _File(Entry(mode, objects.write_blob(structured.data)), (f"{path}: {structured.evidence}",))
    offered = tuple(
        f"resolution {one.key} may fit: `stack resolutions show {one.key}`" for one in (found.offered if found else ())
    )
    return _File(None, offered)
