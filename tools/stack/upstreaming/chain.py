# SPDX-License-Identifier: Apache-2.0
"""Which patches of a chain commute: what each needs of those before it, and the tree with only some of them.

Two neighbours commute where git merges the one without the other, and merging both again gives what the chain has: then each could
have been a branch of its own, and it does not matter which is merged first. A patch is moved down past each one before it that it
commutes with; what it does not commute with it takes along. What it arrives with at the bottom is what its text needs.
"""

import functools
from collections.abc import Sequence

from stack.carry.merge import FileMerges, merge
from stack.model.ids import TreeId
from stack.store.objects import Objects


class Chain:
    """Trees that follow each other: `base`, and one after each patch."""

    def __init__(self, objects: Objects, base: TreeId, trees: Sequence[TreeId]) -> None:
        self.objects = objects
        self.base = base
        self.trees = (base, *trees)
        self._merges: FileMerges = {}

    def __len__(self) -> int:
        return len(self.trees) - 1

    def needs(self, number: int) -> frozenset[int]:
        """What the text of a patch needs of those before it, directly or through others; patches count from 0."""
        return self._moved(number)[0]

    def alone(self, number: int) -> tuple[TreeId, TreeId]:
        """The trees before and after a patch where only what its text needs is there."""
        return self._moved(number)[1]

    @functools.cache  # noqa: B019  (a chain is short-lived)
    def tree(self, chosen: frozenset[int]) -> TreeId | None:
        """The tree with only some of the patches; None where git sees a conflict between them.

        With a patch come those that its text needs.
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
            # Where files are renamed, git may see another name in other company: then it stands on all before it.
            return frozenset(range(number)), (self.trees[number], self.trees[number + 1])
        return frozenset(taken), (before, after)

    def _without(self, below: TreeId, block: Sequence[TreeId]) -> list[TreeId] | None:
        """A block of trees, the first of which is that after the patch on `below`, without that patch; None where they do not commute."""
        first = block[0]
        lower = [below]
        for tree in block[1:]:
            merged = merge(self.objects, self._merges, first, tree, below)
            if merged.conflicts or merged.tree == lower[-1] or not self._gives(below, first, merged.tree, tree):
                return None
            lower.append(merged.tree)
        return lower

    def _gives(self, base: TreeId, ours: TreeId, theirs: TreeId, wanted: TreeId) -> bool:
        """Whether both branches merge to that tree, whichever comes first."""
        sides = ((ours, theirs), (theirs, ours))
        merged = [merge(self.objects, self._merges, base, *pair) for pair in sides]
        return all(not one.conflicts and one.tree == wanted for one in merged)
