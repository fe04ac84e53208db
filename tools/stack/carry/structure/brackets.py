# SPDX-License-Identifier: Apache-2.0
"""Insert items that are separated by commas: elements of lists, sets and dicts, arguments, parameters, imported names."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from stack.carry.structure.blocks import Inserter
from stack.carry.structure.hunks import Doubt, Insertion, lines
from stack.carry.structure.items import Group, Item, Source

_CALL = re.compile(rb"(?:[ \t\n\\)]|#[^\n]*\n)*\(")
_DEF = re.compile(rb"(?:async[ \t]+)?def[ \t]+[^\s(\[]+[ \t]*\(")
_LAST_ON_LINE = re.compile(rb"[ \t]*(,?)[ \t]*(#[^\n]*)?\n")
_LONGEST = 1 << 17
"""Upper bound of the bytes between brackets; a larger group is a table of data."""
_SILENT = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


class Elements:
    """The elements of a group in the text; there may be more than the group's items, such as a call's positional arguments."""

    def __init__(self, source: Source, group: Group) -> None:
        self.source = source
        self.bare = isinstance(group.owner, ast.Import | ast.ImportFrom) and not _closed(source, group)
        self.spans = _spans(source, group)
        self.at = {id(item): self._element(item) for item in group.items}

    def _element(self, item: Item) -> int:
        start = self.source.span(item.nodes[0])[0]
        end = self.source.span(item.nodes[-1])[1]
        inside = [number for number, (low, high) in enumerate(self.spans) if low <= start and end <= high]
        if len(inside) != 1:
            raise Doubt
        return inside[0]

    def begins_line(self, number: int) -> bool:
        """Return whether the element is the first on its line."""
        start = self.spans[number][0]
        return not self.source.data[self.source.starts[self.source.line(start)] : start].strip()

    def indent(self, number: int) -> bytes:
        """Return the whitespace before an element that begins its line."""
        start = self.spans[number][0]
        return self.source.data[self.source.starts[self.source.line(start)] : start]

    def text(self, number: int) -> bytes:
        """Return the element without its comma."""
        start, end = self.spans[number]
        return self.source.data[start:end]

    def comments(self, number: int) -> tuple[list[bytes], bytes]:
        """Return the comment lines above an element, and the comment after it if it is the last on its line."""
        above: list[bytes] = []
        if self.begins_line(number):
            line = self.source.line(self.spans[number][0])
            floor = self.source.line(self.spans[number - 1][1]) if number else 0
            while line - 1 > floor and self.source.lines[line - 1].lstrip().startswith(b"#"):
                line -= 1
                above.insert(0, self.source.lines[line].strip())
        last = _LAST_ON_LINE.match(self.source.data, self.spans[number][1])
        return above, (last[2] or b"") if last and not self.bare else b""


def _closed(source: Source, group: Group) -> bool:
    """Return whether an import's names are in parentheses."""
    start, end = source.span(group.owner)
    return source.data[start:end].endswith(b")")


def _spans(source: Source, group: Group) -> list[tuple[int, int]]:
    owner = group.owner
    if isinstance(owner, ast.Import | ast.ImportFrom):
        return [source.span(item.nodes[0]) for item in group.items]
    start, end = source.span(owner)
    if isinstance(owner, ast.Call):
        found = _CALL.match(source.data, source.span(owner.func)[1])
        count = len(owner.args) + len(owner.keywords)
    elif isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        found = _DEF.match(source.data, source.starts[owner.lineno - 1] + owner.col_offset)
        end, count = source.span(owner.body[0])[0], len(group.items)
    else:
        found, count = None, len(group.items)
        return _checked(list(_split(source.data[start:end], start)), count)
    if not found:
        raise Doubt
    spans = list(_split(source.data[found.end() - 1 : end], found.end() - 1))
    if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef):
        spans = [(low, high) for low, high in spans if source.data[low:high] not in (b"*", b"/")]
    return _checked(spans, count)


def _checked(spans: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    if len(spans) != count:
        raise Doubt
    return spans


def _split(data: bytes, offset: int) -> Iterator[tuple[int, int]]:
    """Yield the spans between the commas of the bracket with which `data` begins, as byte offsets plus `offset`."""
    if len(data) > _LONGEST:
        raise Doubt
    rows = lines(data + b"\n")
    starts = [offset]
    for row in rows:
        starts.append(starts[-1] + len(row))

    def byte(place: tuple[int, int]) -> int:
        row = rows[place[0] - 1]
        return starts[place[0] - 1] + (place[1] if row.isascii() else len(row.decode()[: place[1]].encode()))

    depth = 0
    start = end = -1
    try:
        for token in tokenize.generate_tokens(io.StringIO(data.decode() + "\n").readline):
            opens, closes = token.string in ("(", "[", "{"), token.string in (")", "]", "}")
            is_operator = token.type == tokenize.OP
            depth -= is_operator and closes
            if depth == 0 and is_operator and closes:
                break
            if depth == 1 and is_operator and token.string == ",":
                yield start, end
                start = -1
            elif depth and token.type not in _SILENT:
                start = byte(token.start) if start < 0 else start
                end = byte(token.end)
            depth += is_operator and opens
    except (tokenize.TokenError, SyntaxError) as wrong:
        raise Doubt from wrong
    if start >= 0:
        yield start, end


@dataclass(frozen=True, slots=True)
class _New:
    """An element of their side with its comments."""

    text: bytes
    above: list[bytes]
    behind: bytes
    indent: bytes | None


def inserter(ours: Elements, theirs: Elements) -> Inserter:
    """Return an inserter for elements."""

    def insert(run: list[Item], left: Item | None, right: Item | None) -> list[Insertion]:
        new = [_new(theirs, theirs.at[id(item)]) for item in run]
        number = ours.at[id(right)] - 1 if right is not None else len(ours.spans) - 1
        number = ours.at[id(left)] if left is not None else number
        if number < 0:
            return _first(ours, new)
        is_last = number + 1 == len(ours.spans)
        ends = _LAST_ON_LINE.match(ours.source.data, ours.spans[number][1])
        # Black's second form: all elements on one line between the lines of the brackets, without a trailing comma.
        beside = (
            is_last and ends and not ends[1] and all(element.indent is None and b"\n" not in element.text for element in new)
        )
        if ours.bare or not ends or (beside and not any(element.behind for element in new)):
            return _inline(ours.spans[number][1], b", %s", new)
        if not ends[1] and not is_last:
            raise Doubt  # The comma is on another line.
        indent = next(
            (ours.indent(near) for near in (number, number + 1) if near < len(ours.spans) and ours.begins_line(near)), None
        )
        # If our side has no trailing comma, the result has none, either.
        rows = _rows(new, indent, b"," if ends[1] else b"")
        comma = [] if ends[1] else [Insertion(ours.spans[number][1], b",")]
        return [*comma, Insertion(ends.end(), rows)]

    return insert


def _new(theirs: Elements, number: int) -> _New:
    above, behind = theirs.comments(number)
    return _New(theirs.text(number), above, behind, theirs.indent(number) if theirs.begins_line(number) else None)


def _first(ours: Elements, new: list[_New]) -> list[Insertion]:
    """Insert before the first element of our side."""
    if not ours.spans:
        raise Doubt
    start = ours.spans[0][0]
    if not ours.begins_line(0):
        return _inline(start, b"%s, ", new)
    if ours.comments(0)[0]:
        raise Doubt  # The comment may belong to the first element, or to all of them.
    return [Insertion(ours.source.starts[ours.source.line(start)], _rows(new, ours.indent(0)))]


def _inline(at: int, form: bytes, new: list[_New]) -> list[Insertion]:
    if any(element.above or element.behind or b"\n" in element.text for element in new):
        raise Doubt
    return [Insertion(at, b"".join(form % element.text for element in new))]


def _rows(new: list[_New], indent: bytes | None, last: bytes = b",") -> bytes:
    """Return elements on their own lines; `last` follows the last element."""
    found: list[bytes] = []
    for number, element in enumerate(new):
        own = element.indent if indent is None else indent
        if own is None or (b"\n" in element.text and own != element.indent):
            raise Doubt
        found += [own + row + b"\n" for row in element.above]
        comma = b"," if number + 1 < len(new) else last
        found.append(own + element.text + comma + (b"  " + element.behind if element.behind else b"") + b"\n")
    return b"".join(found)
