# SPDX-License-Identifier: Apache-2.0
"""Follow the lines that a patch changes through upstream's commits, and find the commits that changed them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stack.carry.drift.finding import after
from stack.carry.history import Index, Step
from stack.model.diff import FileDiff, Hunk, parse, smaller
from stack.model.ids import TreeId
from stack.store import git
from stack.store.objects import FILES, Objects

_MOST_STEPS = 200
"""Upper bound of the commits of one file that are compared line by line."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A step that changed lines of a patch in one file; `hunks` are its changes there, none if it added or removed the file."""

    step: Step
    path: str
    hunks: tuple[Hunk, ...]


def changed_lines(objects: Objects, base: TreeId, before: TreeId, files: Sequence[FileDiff]) -> dict[str, frozenset[int]]:
    """Return the lines around a patch's changes, by path, numbered as in the upstream's own file.

    Args:
        objects: the repository.
        base: upstream's tree.
        before: the tree to which the patch applies, with the earlier patches.
        files: the patch's changes.

    """
    lines: dict[str, frozenset[int]] = {}
    for file in files:
        if file.old is None:
            continue
        around = {
            number for hunk in smaller(file.hunks) for number in range(hunk.old_start, hunk.old_start + max(hunk.old_count, 1))
        }
        entries = [objects.entry(tree, file.old) for tree in (before, base)]
        if all(entry is not None and entry.mode in FILES for entry in entries):
            ids = [entry.id for entry in entries if entry is not None]
            around = set(after(frozenset(around), _hunks(objects, *ids), adding=False))
        lines[file.old] = frozenset(around)
    return lines


def touching(objects: Objects, index: Index, path: str, lines: frozenset[int]) -> Iterator[Touched]:
    """Yield the steps that changed these lines of a file, oldest first; a file that moved is followed to its new path."""
    touches = index.touching(path)
    for touch in touches[:_MOST_STEPS]:
        if touch.was is None or touch.blob is None or touch.mode not in FILES:
            yield Touched(touch.step, path, ())
            continue
        hunks = _hunks(objects, touch.was, touch.blob)
        hit = tuple(hunk for hunk in hunks if _overlaps(hunk, lines))
        lines = after(lines, hunks, adding=False) | _new_lines(hit)
        if hit:
            yield Touched(touch.step, path, hit)


def _hunks(objects: Objects, old: str, new: str) -> tuple[Hunk, ...]:
    """Return the changes between two blobs, without context."""
    if old == new:
        return ()
    show = ["diff", "-U0", "--no-ext-diff", "--no-textconv", "--no-color", old, new]
    data = git.run(show, env={"GIT_DIR": str(objects.repository)}).stdout
    return tuple(hunk for file in parse(data) for hunk in file.hunks) if data else ()


def _overlaps(hunk: Hunk, lines: frozenset[int]) -> bool:
    if not hunk.old_count:  # an insertion below `old_start`
        return hunk.old_start in lines and hunk.old_start + 1 in lines
    return any(number in lines for number in range(hunk.old_start, hunk.old_start + hunk.old_count))


def _new_lines(hunks: Sequence[Hunk]) -> frozenset[int]:
    return frozenset(number for hunk in hunks for number in range(hunk.new_start, hunk.new_start + hunk.new_count))
