# SPDX-License-Identifier: Apache-2.0
"""Put commits into the order of their series, in memory: commits that commute may stand in any order in a working tree."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from stack.base.errors import StackError
from stack.carry.commits import WorktreeCommit
from stack.carry.merge import FileMerges, merge
from stack.carry.trailers import SERIES, marks
from stack.model.ids import CommitId, TreeId
from stack.model.stack import FILE, FOLDER
from stack.store.objects import Objects


def arranged(
    objects: Objects, base: CommitId, commits: Sequence[WorktreeCommit], place: Callable[[WorktreeCommit], int]
) -> list[WorktreeCommit]:
    """Sort commits by the place of their series, and give each the tree that it then has; the last tree stays the same.

    Args:
        objects: the repository with the commits' trees.
        base: the commit below the first one.
        commits: the commits, the oldest first.
        place: the place of a commit's series.

    Raises:
        StackError: two commits do not commute, so that the order of the series would change the result.

    """
    merges: FileMerges = {}
    result: list[WorktreeCommit] = []
    for commit in commits:
        result.append(commit)
        at = len(result) - 1
        while at and place(result[at]) < place(result[at - 1]):
            before = result[at - 2].tree if at > 1 else objects.tree_of(base)
            tree = _commuted(objects, merges, before, result[at - 1], result[at])
            result[at - 1 : at + 1] = [replace(result[at], tree=tree), replace(result[at - 1], tree=result[at].tree)]
            at -= 1
    return result


def _commuted(objects: Objects, merges: FileMerges, before: TreeId, first: WorktreeCommit, second: WorktreeCommit) -> TreeId:
    """Return the tree after the second commit alone; adding the first one to it has to give the same as before."""
    alone = merge(objects, merges, first.tree, before, second.tree)
    both = merge(objects, merges, before, alone.tree, first.tree) if not alone.conflicts else alone
    if both.conflicts or both.tree != second.tree or alone.tree == before:
        raise _stuck(objects, before, first, second)
    return alone.tree


def _stuck(objects: Objects, before: TreeId, first: WorktreeCommit, second: WorktreeCommit) -> StackError:
    changed = [
        {path for path, _, _ in objects.difference(*trees)} for trees in ((before, first.tree), (first.tree, second.tree))
    ]
    paths = sorted(changed[0] & changed[1]) or sorted(changed[1])
    above, below = marks(second.message).get(SERIES), marks(first.message).get(SERIES)
    return StackError(
        f"commit {second.id[:12]} ({second.subject}) of {above} needs {first.id[:12]} ({first.subject}) of {below}, which comes "
        f"later in {FOLDER}/{FILE}: both change {paths[0]}",
        "give them the same series, or put the series into the other order there",
    )
