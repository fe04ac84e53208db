# SPDX-License-Identifier: Apache-2.0
"""Hunks in conflict because their code now stands in another file: the place is found by its lines, and the hunk applied there.

Git follows a file that is renamed as a whole. It does not follow a function to another file, nor a file that is split in two.
Here the lines that such a hunk removes, with the lines around, are searched over the whole new tree. A place counts where they
stand as they stood, only there, and where they no longer stand at the old one. In any doubt there is no answer, and the conflict
stays one. A relocation is a proposal: the user sees it.
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
    """The old names of the files in conflict.

    Of a file that is split and removed, git takes the larger half for its new name, and says that the conflict is there.

    Raises:
        Doubt: it cannot be told which of several files went where.

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
    """Bring a patch's change of `paths` to where their code is in `ours`; None unless all of it plainly belongs elsewhere.

    The patch's change is from `before` to `theirs`; `paths` are those in conflict. Hunks of theirs that merge in place stay there.
    """
    try:
        changes = read(objects, before, theirs, _origins(objects, (before, ours, theirs), paths))
        left = leave(objects, before, ours, changes)
        found = find(objects, before, ours, left)
        return build(objects, (before, ours, theirs), left, found)
    except Doubt:
        return None
