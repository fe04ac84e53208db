# SPDX-License-Identifier: Apache-2.0
"""Find which patches of a chain commute: the earlier patches that each needs, and the tree with a subset of the patches.

Two neighbours commute if git merges one without the other, and merging both again gives the tree that the chain has. Each could
then have been a branch of its own, and their order does not matter. A patch is moved down past each earlier patch that it
commutes with. An earlier patch that it does not commute with moves down together with it. The patches that have moved with it
to the bottom are the ones that its text needs.
"""

import functools
from collections.abc import Sequence

from stack.carry.merge import FileMerges, merge
from stack.model.ids import TreeId
from stack.store.objects import Objects


class Chain:
    """A sequence of trees: `base`, and one tree after each patch."""

    def __init__(self, objects: Objects, base: TreeId, trees: Sequence[TreeId]) -> None:
        self.objects = objects
        self.base = base
        self.trees = (base, *trees)
        self._merges: FileMerges = {}

    def __len__(self) -> int:
        return len(self.trees) - 1

    def needs(self, number: int) -> frozenset[int]:
        """Return the earlier patches that a patch's text needs, directly or through others; patches count from 0."""
        return self._moved(number)[0]

    def alone(self, number: int) -> tuple[TreeId, TreeId]:
        """Return the trees before and after a patch if only the patches that its text needs are below it."""
        return self._moved(number)[1]

    @functools.cache  # noqa: B019  (a chain is short-lived)
    def tree(self, chosen: frozenset[int]) -> TreeId | None:
        """Return the tree with a subset of the patches, None if git finds a conflict between them.

        The patches that the chosen patches' text needs are included.
        """
        numbers = sorted(chosen.union(*(self.needs(number) for number in chosen)))
        tree = self.base
        for number in numbers:
            before, after = self.alone(number)
            merged = merge(self.objects, self._merges, before, tree, after)
            if merged.conflicts:
                return None
            tree = merged.tree
        return tree

    @functools.cache  # noqa: B019  (a chain is short-lived)
    def _moved(self, number: int) -> tuple[frozenset[int], tuple[TreeId, TreeId]]:
        block = [*self.trees[number : number + 2]]
        taken: set[int] = set()
        for below in reversed(range(number)):
            lower = self._without(self.trees[below], block)
            if lower is None:
                taken.add(below)
                block.insert(0, self.trees[below])
            else:
                block = lower
        before, after = block[-2:]
        merged = merge(self.objects, self._merges, before, self.trees[number], after)
        if merged.conflicts or merged.tree != self.trees[number + 1]:
            # Git may detect another rename among other files; treat the patch as needing all earlier ones then.
            return frozenset(range(number)), (self.trees[number], self.trees[number + 1])
        return frozenset(taken), (before, after)

    def _without(self, below: TreeId, block: Sequence[TreeId]) -> list[TreeId] | None:
        """Remove the lowest patch, which `below` is the tree before, from a block of trees.

        The first tree of `block` is the tree after that patch. Return None if the patch and the block do not commute.
        """
        first = block[0]
        lower = [below]
        for tree in block[1:]:
            merged = merge(self.objects, self._merges, first, tree, below)
            if merged.conflicts or merged.tree == lower[-1] or not self._gives(below, first, merged.tree, tree):
                return None
            lower.append(merged.tree)
        return lower

    def _gives(self, base: TreeId, ours: TreeId, theirs: TreeId, wanted: TreeId) -> bool:
        """Return whether merging both branches gives the wanted tree in either order."""
        sides = ((ours, theirs), (theirs, ours))
        merged = [merge(self.objects, self._merges, base, *pair) for pair in sides]
        return all(not merge_.conflicts and merge_.tree == wanted for merge_ in merged)
