# SPDX-License-Identifier: Apache-2.0
"""Relocate hunks whose code has moved to another file: find the new place by its lines, and apply the hunk there.

Git follows a file that is renamed as a whole. It does not follow a function to another file, or a file that is split in two.
So the whole new tree is searched for the lines that such a hunk removes, with the lines around them. A place is accepted only
if it has these lines unchanged, no other place has them, and the old place no longer has them. In doubt, the conflict stays.
A relocation is a proposal that the user reviews.
"""

from collections.abc import Collection

from stack.carry.relocation.errors import Doubt
from stack.carry.relocation.hunks import leave, read
from stack.carry.relocation.result import Move, Relocation, build
from stack.carry.relocation.search import find
from stack.model.ids import TreeId
from stack.store.objects import Objects

__all__ = ["Move", "Relocation", "relocate"]


def _origins(objects: Objects, trees: tuple[TreeId, TreeId, TreeId], paths: Collection[str]) -> list[str]:
    """Return the old names of the files in conflict.

    If a file was split and removed, git takes the larger half for a rename, and reports the conflict under that name.

    Raises:
        Doubt: it is ambiguous which file became which.

    """
    before, ours, theirs = trees
    known = [path for path in paths if objects.entry(before, path) is not None]
    gone = [
        path
        for path, old, new in objects.difference(before, theirs)
        if old is not None and new is not None and objects.entry(ours, path) is None and path not in known
    ]
    renamed = len(paths) - len(known)
    if renamed and renamed != len(gone):
        raise Doubt
    return [*known, *gone] if renamed else known


def relocate(objects: Objects, before: TreeId, ours: TreeId, theirs: TreeId, paths: Collection[str]) -> Relocation | None:
    """Apply a patch's change of `paths` where their code is in `ours`; None if the new place of any hunk is in doubt.

    The patch's change is from `before` to `theirs`; `paths` are the files in conflict. Hunks that merge in place stay there.
    """
    try:
        changes = read(objects, before, theirs, _origins(objects, (before, ours, theirs), paths))
        left = leave(objects, before, ours, changes)
        places = find(objects, before, ours, left)
        return build(objects, (before, ours, theirs), left, places)
    except Doubt:
        return None
