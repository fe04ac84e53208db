# SPDX-License-Identifier: Apache-2.0
"""Both sides of a conflict: what upstream and the patch made of the same lines."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from stack.carry.outcome import Carried, Conflict
from stack.carry.resolutions import Resolution
from stack.carry.resolutions.hunks import Hunk, lines, merges
from stack.model.ids import CommitId, TreeId
from stack.store import git
from stack.store.objects import FILES, Entry, Objects


@dataclass(frozen=True, slots=True)
class Side:
    """One conflicting hunk: the lines around it, and its lines before, upstream's and the patch's."""

    before: str
    base: str
    upstream: str
    patch: str
    after: str

    def diff(self, side: str) -> tuple[str, ...]:
        """Return what one side changed, with the lines around it, as the lines of a diff without header."""
        old = lines(self.before + self.base + self.after)
        new = lines(self.before + side + self.after)
        shown = difflib.unified_diff(old, new, n=3, lineterm="\n")
        body = [line.rstrip("\n") for number, line in enumerate(shown) if number > 1 and not line.startswith("@@")]
        return tuple(body or [f" {line.rstrip()}" for line in old])


@dataclass(frozen=True, slots=True)
class Sides:
    """A file in conflict. `note` describes a conflict that is not one of lines, such as a file that is gone."""

    path: str
    lines: tuple[int, int] | None
    reason: str
    hunks: tuple[Side, ...]
    note: str = ""


def of_row(objects: Objects, row: Carried) -> tuple[Sides, ...]:
    """Return both sides of a patch's conflicts, one entry for each file."""
    if not row.conflicts:
        return ()
    before = CommitId(git.text(["rev-parse", f"{row.source}^"], env={"GIT_DIR": str(objects.repository)}))
    theirs = row.left if row.left is not None else objects.tree_of(row.source)
    trees = objects.tree_of(before), objects.tree_of(row.tip), theirs
    by_path = {conflict.path: conflict for conflict in reversed(row.conflicts)}
    return tuple(_of_file(objects, by_path[path], trees) for path in dict.fromkeys(each.path for each in row.conflicts))


def of_resolution(resolution: Resolution) -> Sides:
    """Return both sides of a conflict that a person has resolved."""
    return Sides(resolution.path, None, "resolved by a person", (_side(resolution.hunk),))


def _of_file(objects: Objects, conflict: Conflict, trees: tuple[TreeId, TreeId, TreeId]) -> Sides:
    entries = [objects.entry(tree, conflict.path) for tree in trees]
    place = (conflict.path, conflict.lines, conflict.reason)
    note = _missing(*entries)
    if note:
        return Sides(*place, (), note)
    contents = [objects.read(entry.id) for entry in entries if entry is not None and entry.mode in FILES]
    if len(contents) < len(entries):
        return Sides(*place, (), "one side is a link or a submodule, not a file")
    merged = next((merge for merge in merges(*contents) if merge.hunks), None)
    if merged is None:
        return Sides(*place, (), "the file is binary, too large, or has conflict markers itself")
    return Sides(*place, tuple(map(_side, merged.hunks)))


def _side(hunk: Hunk) -> Side:
    return Side(hunk.before, hunk.base, hunk.ours, hunk.theirs, hunk.after)


def _missing(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> str:
    return next(_sentences(base, ours, theirs), "")


def _sentences(base: Entry | None, ours: Entry | None, theirs: Entry | None) -> Iterator[str]:
    if base is None and ours is not None:
        yield "both upstream and the patch add this file"
    if ours is None and base is not None:
        yield "upstream removed or moved this file, and the patch changes it"
    if theirs is None and base is not None:
        yield "the patch removes this file, and upstream changed it"
    if base is None:
        yield "the file is in neither version: an earlier patch that adds it could not be carried"
