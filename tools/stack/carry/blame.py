# SPDX-License-Identifier: Apache-2.0
"""Find the upstream commits that caused a conflict, or the release where history is missing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from stack.carry import history
from stack.carry.history import Index, Touch
from stack.carry.ladder import Rung
from stack.carry.merge import FileMerges, Triple, merge_files
from stack.carry.outcome import Conflict, Upstream
from stack.model.ids import TreeId
from stack.store.objects import FILES, Entry, Objects

_T = TypeVar("_T")
_MOST = 5
"""Upper bound of the commits that are named for one conflict."""
_ASKED = 64
"""Versions of a file that are merged one by one; older ones are bisected."""


def conflicts(
    objects: Objects,
    merges: FileMerges,
    index: Index | None,
    rung: Rung,
    unpatched: TreeId,
    trees: tuple[TreeId, TreeId, TreeId],
    found: Sequence[Conflict],
) -> tuple[Conflict, ...]:
    """Add to each conflict the upstream commits that caused it.

    The first is the commit since which the patch no longer merges: it merges with the version of the file before that commit, and
    with none after it. Then come other commits that changed the lines in conflict.

    Args:
        objects: the repository.
        merges: the known file merges; new ones are added.
        index: upstream's changes between the bases.
        rung: the new base.
        unpatched: the tree of the old base without any patches.
        trees: the trees before the patch, of the new base, and after the patch.
        found: the conflicts.

    """
    named = []
    for conflict in found:
        if index is None or index.releases:
            causes: tuple[Upstream, ...] = (Upstream(rung.commit, rung.name, release=True),)
        else:
            touches = index.touching(conflict.path)
            first = _first(objects, merges, touches, conflict.path, unpatched, trees)
            others = _same_lines(objects, index, touches, conflict, trees)
            causes = tuple(dict.fromkeys(Upstream(touch.step.commit, touch.step.subject) for touch in (*first, *others)))[
                :_MOST
            ]
        named.append(replace(conflict, upstream=causes))
    return tuple(named)


def _first(
    objects: Objects,
    merges: FileMerges,
    touches: Sequence[Touch],
    path: str,
    unpatched: TreeId,
    trees: tuple[TreeId, TreeId, TreeId],
) -> tuple[Touch, ...]:
    """Find the first commit whose version of the file, with the earlier patches on top, is in conflict with the patch."""
    bare, base, theirs = (objects.entry(tree, path) for tree in (unpatched, trees[0], trees[2]))

    def fails(touch: Touch) -> bool:
        if touch.blob is None or touch.mode is None:
            return base is not None  # The file that the patch changes is gone.
        if base is None or theirs is None:
            return True  # Both sides add the file, or the patch removes a file that upstream changes.
        if touch.mode not in FILES or base.mode not in FILES or theirs.mode not in FILES:
            return True
        ours: Entry | None = Entry(touch.mode, touch.blob)
        if bare is not None and bare != base and ours is not None:
            below = Triple(bare, ours, base)
            merge_files(objects, merges, [below])
            ours = None if merges[below].conflicts else merges[below].entry
        if ours is None:
            return False  # An earlier patch is in conflict there, which is another conflict's cause.
        triple = Triple(base, ours, theirs)
        if triple.ours in (triple.base, triple.theirs):
            return False
        merge_files(objects, merges, [triple])
        return bool(merges[triple].conflicts)

    place = begins(touches, fails)
    return (touches[place],) if place is not None else ()


def begins(items: Sequence[_T], holds: Callable[[_T], bool]) -> int | None:
    """Find the place from which on `holds` is true up to the end; None if it is false for the last item.

    Upstream may change a line beside the patch's and change it back, so the last items are asked one by one, from the end.
    """
    if not items or not holds(items[-1]):
        return None
    place = len(items) - 1
    while place and len(items) - place < _ASKED and holds(items[place - 1]):
        place -= 1
    if not place or len(items) - place < _ASKED:
        return place
    return first_where(items[: place + 1], holds)


def first_where(items: Sequence[_T], holds: Callable[[_T], bool]) -> int | None:
    """Bisect for the place from which on `holds` is true; None if it is false for the last item."""
    if not items or not holds(items[-1]):
        return None
    low, high = 0, len(items) - 1
    while low < high:
        middle = (low + high) // 2
        if holds(items[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _same_lines(
    objects: Objects, index: Index, touches: Sequence[Touch], conflict: Conflict, trees: tuple[TreeId, TreeId, TreeId]
) -> list[Touch]:
    """Return the commits that added upstream's side of the lines in conflict, newest first."""
    entry = objects.entry(trees[1], conflict.path)
    if conflict.lines is None or entry is None or entry.mode not in FILES:
        return []
    first, last = conflict.lines
    here = objects.read(entry.id).split(b"\n")[first - 1 : last]
    wanted = {added for line in here if (added := history.telling(b"+" + line)) is not None}
    bringing = {held.step for holders in index.holders(wanted).values() for held in holders if held.path == conflict.path}
    return [touch for touch in reversed(touches) if touch.step.number in bringing]
