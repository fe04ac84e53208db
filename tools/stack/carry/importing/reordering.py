# SPDX-License-Identifier: Apache-2.0
"""Put the patches of a stack into the order of their series, in memory, and export those that are new or change."""

from collections.abc import Sequence
from dataclasses import dataclass

from stack.base.errors import StackError
from stack.carry.commits import Content, stable
from stack.carry.export import export
from stack.carry.importing import ordering
from stack.carry.importing.candidate import Candidate
from stack.carry.importing.ordering import Dependencies, Order
from stack.carry.merge import FileMerges, merge
from stack.model import patch as patches
from stack.model.diff import FileDiff
from stack.model.ids import CommitId, TreeId
from stack.model.patch import Patch
from stack.model.series import PatchRef
from stack.model.stack import Stack
from stack.store.objects import Identity, Objects


@dataclass(frozen=True, slots=True)
class Item:
    """A patch of the stack or a new one, with the trees before and after it in the original order."""

    before: TreeId
    after: TreeId
    ref: PatchRef | None
    author: Identity
    message: str


def items(objects: Objects, base: CommitId, sources: Sequence[Patch | Candidate], commits: Sequence[CommitId]) -> list[Item]:
    """Return patches and candidates with the trees before and after each; `commits` is their chain on `base`."""
    trees = [objects.tree_of(commit) for commit in (base, *commits)]
    return [
        Item(
            before,
            after,
            one.ref if isinstance(one, Patch) else None,
            Identity(one.author.name, one.author.mail, one.author.date),
            one.message,
        )
        for one, before, after in zip(sources, trees, trees[1:], strict=False)
    ]


def ordered(
    objects: Objects, base: CommitId, items: Sequence[Item], names: Sequence[str], stack: Stack, wanted: Sequence[int] = ()
) -> tuple[Order, Dependencies, list[TreeId]]:
    """Order the patches by series, and return the tree after each of them; the last tree is the same as in the old order.

    If the merges show that two patches do not commute, they are ordered once more with that knowledge.
    """
    fixed = [member.name for member in stack.series]
    touched = [frozenset(path for path, _, _ in objects.difference(item.before, item.after)) for item in items]
    needed = ordering.dependencies(_diffs(objects, base, items))
    merges: FileMerges = {}
    while True:
        order = ordering.settled(names, needed, fixed, wanted)
        trees, blocked = _reordered(objects, merges, base, items, order)
        if blocked is None:
            return order, needed, trees
        paths = blocked.paths
        more = [
            {other for other in range(number) if touched[number] & touched[other] & paths}
            if number >= blocked.number
            else set[int]()
            for number in range(len(items))
        ]
        if all(new <= old for new, old in zip(more, needed, strict=True)):
            raise StackError(
                "the patches give other files in the order of these series", "import them into one series (--series NAME)"
            )
        needed = [old | new for old, new in zip(needed, more, strict=True)]


@dataclass(frozen=True, slots=True)
class _Blocked:
    """Where a new order fails: the patch that does not apply or changes nothing (0: all do, but the result differs), and the paths."""

    number: int
    paths: frozenset[str]


def _reordered(
    objects: Objects, merges: FileMerges, base: CommitId, items: Sequence[Item], order: Order
) -> tuple[list[TreeId], _Blocked | None]:
    tree = objects.tree_of(base)
    trees: list[TreeId] = []
    for number in order.places:
        item = items[number]
        if tree == item.before:
            tree = item.after
        else:
            merged = merge(objects, merges, item.before, tree, item.after)
            if merged.conflicts:
                return trees, _Blocked(number, frozenset(conflict.path for conflict in merged.conflicts))
            if merged.tree == tree:
                return trees, _Blocked(number, frozenset(path for path, _, _ in objects.difference(item.before, item.after)))
            tree = merged.tree
        trees.append(tree)
    last = items[-1].after
    if tree != last:
        return trees, _Blocked(0, frozenset(path for path, _, _ in objects.difference(tree, last)))
    return trees, None


def _diffs(objects: Objects, base: CommitId, items: Sequence[Item]) -> list[tuple[FileDiff, ...]]:
    """Return the diff of every patch in the original order, as git makes it."""
    raws = _chain_files(objects, base, items, range(len(items)), [item.after for item in items])
    return [patches.files(patches.parse(raw, PatchRef("", "", str(number)), name=str(number))) for number, raw in raws.items()]


def _chain_files(
    objects: Objects, base: CommitId, items: Sequence[Item], places: Sequence[int], trees: Sequence[TreeId]
) -> dict[int, bytes]:
    """Commit patches in an order, and return the file of each, in a form that another export repeats."""

    def export_all(contents: Sequence[Content]) -> Sequence[bytes]:
        chain = [base]
        for tree, content in zip(trees, contents, strict=True):
            chain.append(objects.write_commit(tree, (chain[-1],), content.message, content.author))
        return export(objects, base, chain[1:])

    def read(place: int, raw: bytes) -> Patch:
        return patches.parse(raw, PatchRef("", "", str(place)), name=names[place])

    wanted = [Content(items[number].message, items[number].author) for number in places]
    names = [content.message.partition("\n")[0] for content in wanted]
    return dict(zip(places, stable(export_all, wanted, read, names), strict=True))


def exported(
    objects: Objects, base: CommitId, items: Sequence[Item], order: Order, trees: Sequence[TreeId], existing: int
) -> dict[int, bytes]:
    """Return the files of the new patches, and of those of the stack's patches that stand after one and change."""
    raws = _chain_files(objects, base, items, order.places, trees)
    first = next(place for place, number in enumerate(order.places) if number >= existing)
    return {number: raws[number] for number in order.places[first:]}
