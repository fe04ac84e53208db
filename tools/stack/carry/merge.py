# SPDX-License-Identifier: Apache-2.0
"""Three-way merge of one patch's change into another tree, without a working tree.

Many files of a patch are the same on both bases, so their merge is known without merging: the result is taken over by id.
What is left goes to `git merge-tree` as small trees of just those files; only where a file is gone on the new base (renamed,
perhaps) git gets the whole trees and looks for it.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from stack.carry.mergetree import Result, merge_trees
from stack.carry.outcome import Conflict
from stack.model.ids import TreeId
from stack.store.objects import EMPTY_TREE, FILES, FOLDER, Entry, Objects

_KIND = re.compile(r"CONFLICT \(([^)]+)\)")
# Which file git leaves in the tree: nobody sees that tree.
_LEFT = re.compile(r"\.? +Version .* left in tree( at .*)?\.$")
# Where two things cannot have the same name, git gives one of them a name with its side's commit id.
_SIDE = re.compile(r"~[0-9a-f]{40}(_\d+)?$")
_MARKER = re.compile(rb"^(<{7}|\|{7}|={7}|>{7})(?: .*)?\r?$")


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged tree; where there are conflicts it is only good for looking at them."""

    tree: TreeId
    conflicts: tuple[Conflict, ...] = ()
    notes: tuple[str, ...] = ()


Difference = tuple[str, Entry | None, Entry | None]
"""A path that a change touches, and what stands there before and after."""


class Triple(NamedTuple):
    """One file on both sides and before."""

    base: Entry
    ours: Entry
    theirs: Entry


@dataclass(frozen=True, slots=True)
class FileMerge:
    """A merged file; `conflicts` name no path yet."""

    entry: Entry | None
    conflicts: tuple[Conflict, ...]


FileMerges = dict[Triple, FileMerge]


def merge(objects: Objects, merges: FileMerges, base: TreeId, ours: TreeId, theirs: TreeId) -> Merged:
    """Bring the change from `base` to `theirs` into `ours`; `merges` are those that are known, and it learns the rest."""
    changes: dict[str, Entry | None] = {}
    both: dict[str, Triple] = {}
    differences = list(objects.difference(base, theirs))
    if _moves_a_folder(objects, theirs, differences):
        return _read(objects, merge_trees(objects, base, ours, theirs))
    for path, old, new in differences:
        have = objects.entry(ours, path)
        if have == new and new is not None:
            continue
        if have == old and (old is not None or _folder_stands(objects, base, ours, path)):
            changes[path] = new
        elif have is None or have.mode == FOLDER or old is None or new is None:
            return _read(objects, merge_trees(objects, base, ours, theirs))
        else:
            both[path] = Triple(old, have, new)
    merge_files(objects, merges, both.values())
    changes |= {path: merges[triple].entry for path, triple in both.items()}
    conflicts = [replace(one, path=path) for path, triple in both.items() for one in merges[triple].conflicts]
    return Merged(objects.replaced(ours, changes) if changes else ours, tuple(conflicts))


def ahead(objects: Objects, onto: TreeId, chain: Sequence[TreeId]) -> FileMerges:
    """The file merges that carrying a chain of trees needs, worked out in few calls of git.

    A file's merges depend on that file's earlier ones only. So the first merge of every file goes into one call, the second
    into the next. A guess where a patch is left out on the way: what was not foreseen is merged when it is needed.
    """
    steps: dict[str, list[tuple[Entry, Entry]]] = {}
    for before, after in itertools.pairwise(chain):
        for path, old, new in objects.difference(before, after):
            if old is not None and new is not None:
                steps.setdefault(path, []).append((old, new))
    merges: FileMerges = {}
    have = {path: entry for path in steps if (entry := objects.entry(onto, path)) is not None and entry.mode != FOLDER}
    while have:
        waiting = {path: triple for path in have if (triple := _next_merge(have, steps, path)) is not None}
        merge_files(objects, merges, waiting.values())
        have = {
            path: merged
            for path, triple in waiting.items()
            if (merged := merges[triple].entry) and not merges[triple].conflicts
        }
    return merges


def _next_merge(have: dict[str, Entry], steps: dict[str, list[tuple[Entry, Entry]]], path: str) -> Triple | None:
    """Go on along one file's steps up to the next one that needs a merge."""
    while steps[path]:
        old, new = steps[path].pop(0)
        if have[path] not in (old, new):
            return Triple(old, have[path], new)
        have[path] = new
    return None


def merge_files(objects: Objects, merges: FileMerges, triples: Iterable[Triple]) -> None:
    """Merge many files in one call: as flat trees, each file under a number of its own."""
    names = {f"{number:05}": triple for number, triple in enumerate({triple for triple in triples if triple not in merges})}
    if not names:
        return
    parts = [objects.replaced(EMPTY_TREE, {name: triple[side] for name, triple in names.items()}) for side in range(3)]
    merged = _read(objects, merge_trees(objects, parts[0], parts[1], parts[2]))
    for name, triple in names.items():
        conflicts = tuple(replace(one, path="", reason=_kind(one.reason)) for one in merged.conflicts if one.path == name)
        merges[triple] = FileMerge(objects.entry(merged.tree, name), conflicts)


def _folder_stands(objects: Objects, base: TreeId, ours: TreeId, path: str) -> bool:
    """Whether a new file's folder is where it was: where it is gone, it may have been renamed, and the file belongs elsewhere."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        was, now = objects.entry(base, folder), objects.entry(ours, folder)
        if (now is None and was is not None) or (now is not None and now.mode != FOLDER):
            return False
    return True


def _kind(reason: str) -> str:
    """What is wrong with one file, without its name."""
    found = _KIND.search(reason)
    return "binary" if "binary files" in reason else found[1] if found else reason


def _moves_a_folder(objects: Objects, theirs: TreeId, differences: Iterable[Difference]) -> bool:
    """Whether a folder is gone after the change while files come: it may have been renamed, and what the other side adds belongs elsewhere."""
    folders = {path.rpartition("/")[0] for path, _, new in differences if new is None and "/" in path}
    return any(old is None for _, old, _ in differences) and any(
        (entry := objects.entry(theirs, folder)) is None or entry.mode != FOLDER for folder in folders
    )


def _read(objects: Objects, result: Result) -> Merged:
    if result.clean:
        return Merged(result.tree, notes=tuple(message.text for message in result.messages if message.kind != "Auto-merging"))
    conflicts: dict[Conflict, None] = {}
    said = [message for message in result.messages if message.kind.startswith("CONFLICT")]
    for path in sorted(result.stages):
        reason = " ".join(_LEFT.sub("", message.text) for message in said if path in message.paths) or "conflict"
        entry = objects.entry(result.tree, path)
        spans = conflict_lines(objects.read(entry.id)) if entry is not None and entry.mode in FILES else []
        name = _SIDE.sub("", path)
        conflicts |= dict.fromkeys([Conflict(name, span, reason) for span in spans] or [Conflict(name, None, reason)])
    elsewhere = [message for message in said if not result.stages.keys() & set(message.paths)]
    conflicts |= dict.fromkeys(Conflict(message.paths[0] if message.paths else "", None, message.text) for message in elsewhere)
    return Merged(result.tree, tuple(conflicts))


def conflict_lines(data: bytes) -> list[tuple[int, int]]:
    """The conflicts of a file with markers, as (first, last) lines of our side, that is of the file before the merge.

    Where our side of a conflict is empty, both numbers are the line after which the other side wanted to insert.
    """
    found: list[tuple[int, int]] = []
    line = first = 0
    side = ""
    for text in data.split(b"\n"):
        marker = _MARKER.match(text)
        kind = marker[1][:1] if marker else b""
        if kind == b"<" and side == "":
            side, first = "ours", line + 1
        elif kind in (b"|", b"=") and side == "ours":
            found.append((min(first, max(line, 1)), max(line, 1)))
            side = "base" if kind == b"|" else "theirs"
        elif kind == b"=" and side == "base":
            side = "theirs"
        elif kind == b">" and side == "theirs":
            side = ""
        elif side in ("", "ours"):
            line += 1
    return found
