# SPDX-License-Identifier: Apache-2.0
"""Insert items that are on their own lines: statements and decorators, with their comments and the blank lines between them."""

import ast
import re
from collections.abc import Callable, Sequence
from functools import cached_property

from stack.carry.structure.hunks import Doubt, Insertion
from stack.carry.structure.items import Group, Item, Source

_ENDS_LINE = re.compile(rb"[ \t]*(#[^\n]*)?\n")
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

Inserter = Callable[[list[Item], Item | None, Item | None], list[Insertion]]
"""Makes the insertions for a run of their items between two neighbours on our side."""


class Block:
    """A group with its lines."""

    def __init__(self, source: Source, group: Group) -> None:
        self.source = source
        self.group = group

    @cached_property
    def place(self) -> dict[int, int]:
        """Return the index of each item."""
        return {id(item): number for number, item in enumerate(self.group.items)}

    def lines(self, item: Item) -> tuple[int, int]:
        """Return the item's first line, and the line after its last, from 0.

        Raises:
            Doubt: the item shares a line with another item.

        """
        start, end = self.source.span(item.nodes[0])
        first, last = self.source.line(start), self.source.line(end)
        before = self.source.data[self.source.starts[first] : start].strip()
        if before != (b"@" if self.group.kind == "decorators" else b"") or not _ENDS_LINE.match(self.source.data, end):
            raise Doubt
        return first, last + 1

    def text(self, first: int, end: int) -> bytes:
        """Return the lines from `first` to before `end`."""
        return b"".join(self.source.lines[first:end])

    def column(self, item: Item) -> int:
        """Return the item's indentation."""
        node = item.nodes[0]
        assert isinstance(node, ast.stmt | ast.expr)
        return node.col_offset

    def end(self, item: Item) -> int:
        """Return the line after the item and after deeper indented comments that still belong to it."""
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
        """Return the first of the blank and comment lines above the item; for a body's first item, of the comment lines only."""
        number = self.place[id(item)]
        line = self.lines(item)[0]
        if number:
            return self.end(self.group.items[number - 1])
        while line and self.source.lines[line - 1].lstrip().startswith(b"#"):
            line -= 1
        return line

    def comment(self, item: Item) -> int:
        """Return the first of the comment lines directly above the item."""
        line, lead = self.lines(item)[0], self.lead(item)
        while line > lead and self.source.lines[line - 1].strip():
            line -= 1
        return line

    def blanks(self, item: Item) -> int:
        """Count the blank lines above the item and its comments."""
        line = lead = self.lead(item)
        while not self.source.lines[line].strip():
            line += 1
        return line - lead

    def shape(self, run: Sequence[Item]) -> tuple[bool, bool]:
        """Return whether there are blank lines before, and after, a run of items."""
        after = self.after(run[-1])
        return self.blanks(run[0]) > 0, after is not None and self.blanks(after) > 0

    def after(self, item: Item) -> Item | None:
        """Return the next item, or None."""
        number = self.place[id(item)] + 1
        return self.group.items[number] if number < len(self.group.items) else None


def inserter(ours: Block, theirs: Block) -> Inserter:
    """Return an inserter for statements."""

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
    """Insert a run right after the item before it."""
    rows: list[bytes] = []
    for last, item in zip([left, *run[:-1]], run, strict=True):
        gap = max(theirs.blanks(item), _apart(last, item))
        rows += [b"\n" * gap, _with_comments(theirs, item)]
    if right is not None:
        rows.append(b"\n" * max(0, _apart(run[-1], right) - ours.blanks(right)))
    return [Insertion(ours.source.starts[ours.end(left)], b"".join(rows))]


def _before(ours: Block, theirs: Block, run: list[Item], left: Item | None, right: Item | None, close: int) -> list[Insertion]:
    """Insert a run right before the item that follows it."""
    assert right is not None
    at = ours.comment(right)
    if left is None and ours.source.lines[0].startswith(b"#") and at == 0:
        raise Doubt  # The comment may be a licence at the top of the file, or belong to the first statement.
    rows = [b"\n" * max(0, _apart(left, run[0]) - ours.blanks(right))] if left is not None else []
    for number, item in enumerate(run):
        rows += [b"\n" * theirs.blanks(item) if number else b"", _with_comments(theirs, item)]
    rows.append(b"\n" * max(close, _apart(run[-1], right)))
    return [Insertion(ours.source.starts[at], b"".join(rows))]


def _with_comments(block: Block, item: Item) -> bytes:
    """Return the item's lines and the comments above it, without the blank lines above these."""
    end = block.end(item)
    return block.text(block.lead(item) + block.blanks(item), end)


def _apart(upper: Item, lower: Item) -> int:
    """Return the least number of blank lines between two statements: around definitions 1, or 2 at the top level."""
    nodes = upper.nodes[0], lower.nodes[0]
    if not any(isinstance(node, _DEFINITION) for node in nodes):
        return 0
    return 1 if isinstance(nodes[0], ast.stmt) and nodes[0].col_offset else 2


def decorator_inserter(ours: Block, theirs: Block) -> Inserter:
    """Return an inserter for decorators."""

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
    """Return the first line that can belong to a decorator: comments above the first one belong to the definition."""
    number = block.place[id(item)]
    return block.lines(block.group.items[number - 1])[1] if number else block.lines(item)[0]
