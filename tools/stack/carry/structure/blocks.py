# SPDX-License-Identifier: Apache-2.0
"""Items on lines of their own: statements of a body and decorators, with the comments above them and the blank lines between."""

import ast
import re
from collections.abc import Callable, Sequence
from functools import cached_property

from stack.carry.structure.hunks import Doubt, Insertion
from stack.carry.structure.items import Group, Item, Source

_ENDS_LINE = re.compile(rb"[ \t]*(#[^\n]*)?\n")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Inserter = Callable[[list[Item], Item | None, Item | None], list[Insertion]]
"""Makes the insertions of a run of items of theirs between two neighbours in ours."""


class Block:
    """A group with its lines."""

    def __init__(self, source: Source, group: Group) -> None:
        self.source = source
        self.group = group

    @cached_property
    def place(self) -> dict[int, int]:
        """The index of each item."""
        return {id(item): number for number, item in enumerate(self.group.items)}

    def lines(self, item: Item) -> tuple[int, int]:
        """First line and the one after the last, from 0.

        Raises:
            Doubt: the item shares a line with another.

        """
        start, end = self.source.span(item.nodes[0])
        first, last = self.source.line(start), self.source.line(end)
        before = self.source.data[self.source.starts[first] : start].strip()
        if before != (b"@" if self.group.kind == "decorators" else b"") or not _ENDS_LINE.match(self.source.data, end):
            raise Doubt
        return first, last + 1

    def text(self, first: int, end: int) -> bytes:
        """Some lines."""
        return b"".join(self.source.lines[first:end])

    def column(self, item: Item) -> int:
        """The item's indentation."""
        node = item.nodes[0]
        assert isinstance(node, ast.stmt | ast.expr)
        return node.col_offset

    def end(self, item: Item) -> int:
        """The line after the item and the comments that are still inside of it."""
        line = self.lines(item)[1]
        look = line
        while look < len(self.source.lines):
            row = self.source.lines[look]
            if row.strip() and not (row.lstrip().startswith(b"#") and len(row) - len(row.lstrip()) > self.column(item)):
                break
            look += 1
            line = look if row.strip() else line
        return line

    def lead(self, item: Item) -> int:
        """The first of the blank and comment lines that lead to the item; for a body's first item of the comments only."""
        number = self.place[id(item)]
        line = self.lines(item)[0]
        if number:
            return self.end(self.group.items[number - 1])
        while line and self.source.lines[line - 1].lstrip().startswith(b"#"):
            line -= 1
        return line

    def comment(self, item: Item) -> int:
        """The first of the comment lines right above the item."""
        line, lead = self.lines(item)[0], self.lead(item)
        while line > lead and self.source.lines[line - 1].strip():
            line -= 1
        return line

    def blanks(self, item: Item) -> int:
        """How many blank lines stand between the item, with its comments, and what is before it."""
        line = lead = self.lead(item)
        while not self.source.lines[line].strip():
            line += 1
        return line - lead

    def shape(self, run: Sequence[Item]) -> tuple[bool, bool]:
        """Whether blank lines stand before and after a run of items."""
        after = self.after(run[-1])
        return self.blanks(run[0]) > 0, after is not None and self.blanks(after) > 0

    def after(self, item: Item) -> Item | None:
        """The next item."""
        number = self.place[id(item)] + 1
        return self.group.items[number] if number < len(self.group.items) else None


def inserter(ours: Block, theirs: Block) -> Inserter:
    """Insert statements."""

    def insert(run: list[Item], left: Item | None, right: Item | None) -> list[Insertion]:
        neighbour = left or right
        if neighbour is None or any(ours.column(neighbour) != theirs.column(item) for item in run):
            raise Doubt
        after = theirs.after(run[-1])
        close = theirs.blanks(after) if after is not None else None
        if left is None or (right is not None and close is not None and theirs.blanks(run[0]) > close):
            return _before(ours, theirs, run, left, right, close or 0)
        return _behind(ours, theirs, run, left, right)

    return insert


def _behind(ours: Block, theirs: Block, run: list[Item], left: Item, right: Item | None) -> list[Insertion]:
    """The run stands with what is before it."""
    rows: list[bytes] = []
    for last, item in zip([left, *run[:-1]], run, strict=True):
        gap = max(theirs.blanks(item), _apart(last, item))
        rows += [b"\n" * gap, _with_comments(theirs, item)]
    if right is not None:
        rows.append(b"\n" * max(0, _apart(run[-1], right) - ours.blanks(right)))
    return [Insertion(ours.source.starts[ours.end(left)], b"".join(rows))]


def _before(ours: Block, theirs: Block, run: list[Item], left: Item | None, right: Item | None, close: int) -> list[Insertion]:
    """The run stands with what follows it."""
    assert right is not None
    at = ours.comment(right)
    if left is None and ours.source.lines[0].startswith(b"#") and at == 0:
        raise Doubt  # a licence at the top of the file, or the comment of the first statement?
    rows = [b"\n" * max(0, _apart(left, run[0]) - ours.blanks(right))] if left is not None else []
    for number, item in enumerate(run):
        rows += [b"\n" * theirs.blanks(item) if number else b"", _with_comments(theirs, item)]
    rows.append(b"\n" * max(close, _apart(run[-1], right)))
    return [Insertion(ours.source.starts[at], b"".join(rows))]


def _with_comments(block: Block, item: Item) -> bytes:
    """The item's lines and the comments that lead to it, without the blank lines before them."""
    end = block.end(item)
    return block.text(block.lead(item) + block.blanks(item), end)


def _apart(one: Item, other: Item) -> int:
    """How many blank lines belong between two statements at least."""
    nodes = one.nodes[0], other.nodes[0]
    if not any(isinstance(node, _DEFINITION) for node in nodes):
        return 0
    return 1 if isinstance(nodes[0], ast.stmt) and nodes[0].col_offset else 2


def decorator_inserter(ours: Block, theirs: Block) -> Inserter:
    """Insert decorators."""

    def insert(run: list[Item], left: Item | None, right: Item | None) -> list[Insertion]:
        neighbour = left or right
        assert isinstance(ours.group.owner, ast.stmt)
        column = ours.column(neighbour) if neighbour else ours.group.owner.col_offset + 1
        if any(theirs.column(item) != column for item in run):
            raise Doubt
        line = ours.lines(right)[0] if right else ours.group.owner.lineno - 1
        line = ours.lines(left)[1] if left else line
        rows = []
        for item in run:
            first, end = theirs.lines(item)
            while theirs.source.lines[first - 1].lstrip().startswith(b"#") and first > _floor(theirs, item):
                first -= 1
            rows.append(theirs.text(first, end))
        return [Insertion(ours.source.starts[line], b"".join(rows))]

    return insert


def _floor(block: Block, item: Item) -> int:
    """The line above which nothing is the decorator's: comments above a whole definition are the definition's."""
    number = block.place[id(item)]
    return block.lines(block.group.items[number - 1])[1] if number else block.lines(item)[0]
