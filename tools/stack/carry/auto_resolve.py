# SPDX-License-Identifier: Apache-2.0
"""Resolve conflicts without a person: by a recorded resolution, by the files' structure, or by moving a hunk with its code."""

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
    """The resolved tree and how it was resolved; if a conflict is left, no tree, and hints about the conflict."""

    tree: TreeId | None
    outcome: Outcome
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """One file in conflict; `entry` is the resolved file, or None if it is not resolved yet."""

    entry: Entry | None
    evidence: tuple[str, ...]
    used: tuple[Resolution, ...] = ()


def rescue(
    objects: Objects, known: Resolutions | None, before: TreeId, ours: TreeId, theirs: TreeId, merged: Merged
) -> Rescued:
    """Try to resolve all conflicts of a merge; succeed only if every file in conflict is resolved."""
    paths = dict.fromkeys(conflict.path for conflict in merged.conflicts)
    files = {path: _by_content(objects, known, before, ours, theirs, path) for path in paths}
    evidence = tuple(text for file in files.values() for text in file.evidence)
    changes: dict[str, Entry | None] = {path: file.entry for path, file in files.items() if file.entry is not None}
    left = [path for path in paths if path not in changes]
    beside = _beside(objects, merged.tree, [resolution for file in files.values() for resolution in file.used])
    if beside is None:
        return Rescued(None, Outcome.CONFLICT, (*evidence, "what was changed beside the conflict then has no place there"))
    if not left:
        return Rescued(objects.replaced(merged.tree, changes | beside), Outcome.RESOLVED, evidence)
    moved = relocate(objects, before, ours, theirs, left)
    if moved is None or beside:
        return Rescued(None, Outcome.CONFLICT, evidence)
    merged_paths = {path for path, _, _ in objects.difference(ours, merged.tree)} - set(left)
    if merged_paths & moved.changes.keys():
        # The patch itself also changes a file to which hunks would move; the two changes are not combined here.
        return Rescued(None, Outcome.CONFLICT, evidence)
    changes |= {path: objects.entry(ours, path) for path in left} | dict(moved.changes)
    moves = tuple(f"{move.old_path}:{move.old_line} is now {move.new_path}:{move.new_line}" for move in moved.moves)
    return Rescued(objects.replaced(merged.tree, changes), Outcome.RELOCATED, (*evidence, *moves))


def _beside(objects: Objects, merged: TreeId, used: Sequence[Resolution]) -> dict[str, Entry | None] | None:
    """Apply the resolutions' changes to files without conflicts; None if a change fits nowhere in its file, or at several places."""
    files: dict[str, Entry | None] = {}
    wanted = [change for resolution in used for change in resolution.beside]
    for path in dict.fromkeys(change.path for change in wanted):
        entry = objects.entry(merged, path)
        text = hunks.text(objects.read(entry.id)) if entry is not None and entry.mode in FILES else None
        changed = applied(text, [change for change in wanted if change.path == path]) if text is not None else None
        if entry is None or changed is None:
            return None
        files[path] = Entry(entry.mode, objects.write_blob(hunks.encoded(changed)))
    return files


def _by_content(objects: Objects, known: Resolutions | None, before: TreeId, ours: TreeId, theirs: TreeId, path: str) -> _File:
    """Resolve a file from its three versions; try recorded resolutions first, since a person made them."""
    entries = [objects.entry(tree, path) for tree in (before, ours, theirs)]
    files = [entry for entry in entries if entry is not None and entry.mode in FILES]
    if len(files) < len(entries):
        return _File(None, ())
    base, mine, yours = (objects.read(entry.id) for entry in files)
    mode = files[2].mode if files[2].mode != files[0].mode else files[1].mode
    recorded = known.apply(path, base, mine, yours) if known is not None else None
    if recorded is not None and recorded.data is not None:
        evidence = tuple(f"resolution {used.key} made on {used.rung}" for used in recorded.used)
        return _File(Entry(mode, objects.write_blob(recorded.data)), evidence, recorded.used)
    structured = structure.resolve(path, base, mine, yours)
    if structured is not None:
        return _File(Entry(mode, objects.write_blob(structured.data)), (f"{path}: {structured.evidence}",))
    offered = tuple(
        f"resolution {offer.key} may fit: `stack resolutions show {offer.key}`"
        for offer in (recorded.offered if recorded else ())
    )
    return _File(None, offered)
