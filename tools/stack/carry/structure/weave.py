# SPDX-License-Identifier: Apache-2.0
"""Insert the items that their side adds into the text of our side.

Our text is not rewritten: the result is our text with insertions, so its layout and comments stay the same. This module does
not decide whether an insertion is right: `proof` parses the result and decides.
"""

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stack.carry.structure import blocks, brackets, order
from stack.carry.structure.blocks import Block
from stack.carry.structure.brackets import Elements
from stack.carry.structure.hunks import Doubt, Insertion
from stack.carry.structure.items import Group, Item, Source, align, common, equal, parts, tokens

_NAMES = {
    "decorators": "decorator stack",
    "parameters": "parameter list",
    "keywords": "argument list",
    "names": "import",
}

Member = tuple[Item, bool]
"""An item of the united group, and whether their side adds it."""


@dataclass(frozen=True, slots=True)
class Woven:
    """The insertions into our text. `evidence`: for each construct, its first insertion and a description."""

    insertions: tuple[Insertion, ...]
    evidence: tuple[tuple[Insertion, str], ...]
    shared: bool
    """Whether both sides made the same change somewhere, other than the same import."""

    def apply(self, ours: bytes) -> bytes:
        """Return our text with the insertions."""
        pieces: list[bytes] = []
        last = 0
        for insertion in self.insertions:
            pieces += [ours[last : insertion.at], insertion.data]
            last = insertion.at
        return b"".join([*pieces, ours[last:]])


def weave(base: Source, ours: Source, theirs: Source) -> Woven:
    """Find the items that their side adds, and their places in our text.

    Raises:
        Doubt: a side does more than add, or the place of an item is not certain.

    """
    weaver = _Weaver(ours, theirs)
    weaver.node(base, base.tree, ours.tree, theirs.tree)
    insertions = sorted(weaver.insertions, key=lambda insertion: insertion.at)
    return Woven(tuple(insertions), tuple(sorted(weaver.evidence, key=lambda pair: pair[0].at)), weaver.shared)


class _Weaver:
    def __init__(self, ours: Source, theirs: Source) -> None:
        self.ours = ours
        self.theirs = theirs
        self.insertions: list[Insertion] = []
        self.evidence: list[tuple[Insertion, str]] = []
        self.shared = False

    def node(self, source: Source, base: ast.AST, ours: ast.AST, theirs: ast.AST) -> None:
        if not type(base) is type(ours) is type(theirs) or isinstance(base, ast.JoinedStr):
            raise Doubt  # The offsets of nodes inside an f-string are not reliable.
        three = [parts(source, base), parts(self.ours, ours), parts(self.theirs, theirs)]
        if three[1].scalars != three[2].scalars:
            raise Doubt
        self.shared |= three[0].scalars != three[1].scalars
        for old, mine, new in zip(*(each.groups for each in three), strict=True):
            self.group(old, mine, new)
        for versions in zip(*(each.children for each in three), strict=True):
            self.child(source, *versions)

    def child(self, source: Source, base: ast.AST | None, ours: ast.AST | None, theirs: ast.AST | None) -> None:
        if ours is None and theirs is None:
            return
        if ours is None or theirs is None:
            raise Doubt
        mine, new = Item(self.ours, [ours]), Item(self.theirs, [theirs])
        if mine.text == new.text:
            self.shared |= base is None or Item(source, [base]).text != mine.text
            return
        # Do not dump a whole class only to see that it differs: that takes long, and its members are compared anyway.
        if (
            base is None or not type(base) is type(ours) is type(theirs) or not hasattr(ours, "body")
        ) and mine.ident == new.ident:
            self.shared |= base is None or Item(source, [base]).ident != mine.ident
            return
        if base is None:
            raise Doubt
        self.node(source, base, ours, theirs)

    def group(self, base: Group, ours: Group, theirs: Group) -> None:
        members: list[Member] = []
        for step in align(base.items, ours.items, theirs.items):
            if step.pair:
                self.pair(step.base[0], step.ours[0], step.theirs[0])
                members.append((step.ours[0], False))
            elif equal(step.ours, step.theirs):
                members += [(item, False) for item in step.ours]
                self.shared |= not all(_is_import(item) for item in step.ours)
            elif step.base:
                raise Doubt
            else:
                members += self.unite(ours, theirs, step.ours, step.theirs)
        if any(added for _, added in members):
            self.insert(ours, theirs, members)

    def pair(self, base: Item, ours: Item, theirs: Item) -> None:
        if ours.text == theirs.text:
            self.shared |= not base.same(ours)
            return
        if len({len(item.nodes) for item in (base, ours, theirs)}) > 1 or len({item.kind for item in (base, ours, theirs)}) > 1:
            raise Doubt
        for nodes in zip(base.nodes, ours.nodes, theirs.nodes, strict=True):
            self.child(base.source, *nodes)

    def unite(self, ours: Group, theirs: Group, mine: list[Item], new: list[Item]) -> list[Member]:
        """Unite both sides' additions at one place: items of both once, and sorted if the group is sorted."""
        shared = common(mine, new)
        left, right = tokens(mine, new)
        if any(token in left for place, token in enumerate(right) if place not in {high for _, high in shared}):
            raise Doubt  # Both sides have these items, but in different orders.
        members: list[Member] = []
        low = high = 0
        for at, other in [*shared, (len(mine), len(new))]:
            members += self.merge(ours, theirs, mine[low:at], new[high:other])
            members += [(item, False) for item in mine[at : at + 1]]
            self.shared |= not all(_is_import(item) for item in mine[at : at + 1])
            low, high = at + 1, other + 1
        return members

    def merge(self, ours: Group, theirs: Group, mine: list[Item], new: list[Item]) -> list[Member]:
        first, second = [(item, False) for item in mine], [(item, True) for item in new]
        if not first or not second:
            return first + second
        if ours.kind == "suite":
            heads = [next((at for at, item in enumerate(side) if not _is_import(item)), len(side)) for side in (mine, new)]
            if (heads[0] < len(mine) or heads[1] < len(new)) and any(heads):  # Imports stay with imports.
                top = self.merge(ours, theirs, mine[: heads[0]], new[: heads[1]])
                return top + self.merge(ours, theirs, mine[heads[0] :], new[heads[1] :])
            shapes = [Block(self.ours, ours).shape(mine), Block(self.theirs, theirs).shape(new)]
            if shapes[0] != shapes[1]:
                # One run adjoins the item above, the other the item below, with a blank line between the two runs.
                return second + first if shapes == [(True, False), (False, True)] else first + second
        sort = order.found(Block(self.ours, ours), mine, Block(self.theirs, theirs), new)
        return sorted(first + second, key=lambda member: sort(member[0])) if sort else first + second

    def insert(self, ours: Group, theirs: Group, members: list[Member]) -> None:
        place: Callable[[list[Item], Item | None, Item | None], list[Insertion]]
        if ours.kind == "suite":
            place = blocks.inserter(Block(self.ours, ours), Block(self.theirs, theirs))
        elif ours.kind == "decorators":
            place = blocks.decorator_inserter(Block(self.ours, ours), Block(self.theirs, theirs))
        elif ours.kind == "fixed":
            raise Doubt
        else:
            place = brackets.inserter(Elements(self.ours, ours), Elements(self.theirs, theirs))
        done = [insertion for left, run, right in _runs(members) for insertion in place(run, left, right)]
        self.insertions += done
        first = next((insertion for insertion in done if insertion.data != b","), done[0])
        self.evidence.append((first, _say(ours, theirs)))


def _say(ours: Group, theirs: Group) -> str:
    """Describe the construct and the items that only one side has."""
    mine, new = tokens(ours.items, theirs.items)
    keys = {item.key for item in ours.items} & {item.key for item in theirs.items} - {None}
    first = [item for item, token in zip(ours.items, mine, strict=True) if token not in set(new) and item.key not in keys]
    second = [item for item, token in zip(theirs.items, new, strict=True) if token not in set(mine) and item.key not in keys]
    kind = _NAMES.get(ours.kind, ours.kind)
    if ours.kind == "suite" and all(map(_is_import, first + second)):
        kind = "import block"
    elif ours.kind == "suite":
        kind = f"body of class {ours.owner.name}" if isinstance(ours.owner, ast.ClassDef) else "definitions"
    labels = [", ".join(item.label for item in items) for items in (first, second)]
    who = "both sides add" if first else "theirs adds"
    return f"{who} to the {kind} at line {{line}}: " + "; ".join(label for label in labels if label)


def _is_import(item: Item) -> bool:
    return bool(item.nodes) and isinstance(item.nodes[0], ast.Import | ast.ImportFrom | ast.alias)


def _runs(members: Sequence[Member]) -> Iterator[tuple[Item | None, list[Item], Item | None]]:
    """Yield the runs of items that are inserted together, each with its neighbours on our side."""
    left: Item | None = None
    run: list[Item] = []
    for item, added in members:
        if added:
            run.append(item)
            continue
        if run:
            yield left, run, item
        left, run = item, []
    if run:
        yield left, run, None
