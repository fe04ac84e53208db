# SPDX-License-Identifier: Apache-2.0
"""Split the text of a Python file into its top-level statements without parsing it."""

import ast
import functools
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from stack.carry.drift.outline import parse

# Each pattern begins with a line feed: a search for it is many times as fast as one for the start of a line.
_IMPORT = re.compile(
    rb"\n[ \t]*(from[ \t]+[.\w]+[ \t]+import[ \t]*(?:\([^()]*\)|[^\n\\(]*(?:\\\n[^\n\\]*)*)|import[ \t]+[^\n\\]*(?:\\\n[^\n\\]*)*)"
)
_START = re.compile(rb"\n([^ \t\r\n#)\]}][^\n]?[^\n]?[^\n]?)")
_NO_START = (b"else", b"elif", b"exce", b"fina", b'"""', b"'''")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A top-level statement: its text, and its first line in the file (from 0)."""

    text: bytes
    start: int

    @property
    def lines(self) -> list[bytes]:
        """Return its lines."""
        return self.text[:-1].split(b"\n")

    def added(self, numbers: Set[int]) -> set[int]:
        """Return those of the file's line numbers that are in this statement, as places in its own list of lines."""
        size = self.text.count(b"\n")
        return {place for number in numbers if 0 <= (place := number - 1 - self.start) < size}


@functools.lru_cache(maxsize=16)
def chunks(data: bytes) -> tuple[Chunk, ...]:
    """Split a file into top-level statements. A decorator belongs to its definition, text before the first statement to that."""
    data = data if data.endswith(b"\n") else data + b"\n"
    first = [0]
    decorated = data.startswith(b"@")
    for match in _START.finditer(data):
        if match[1].startswith(_NO_START):
            continue
        if not decorated:
            first.append(match.start(1))
        decorated = match[1].startswith(b"@")
    found = []
    line = 0
    for start, end in zip(first, [*first[1:], len(data)], strict=True):
        found.append(Chunk(data[start:end], line))
        line += data.count(b"\n", start, end)
    return tuple(found)


def texts(data: bytes) -> frozenset[bytes]:
    """Return the text of each top-level statement of a file."""
    return frozenset(chunk.text for chunk in chunks(data))


def imports(data: bytes, shown: list[bytes] | None = None) -> list[ast.stmt]:
    """Return the imports of a file, or of the lines that are not in `shown`; their line number is 0, which is never added.

    Raises:
        SyntaxError: text that looks like an import is not valid.

    """
    found = (text for line, text in _imports(data) if shown is None or not shown[line])
    return list(_unnumbered(b"\n".join(found) + b"\n"))


@functools.lru_cache(maxsize=16)
def _imports(data: bytes) -> tuple[tuple[int, bytes], ...]:
    """Return the text of each import of a file, with its line (from 0)."""
    found = []
    line = place = 0
    for match in _IMPORT.finditer(b"\n" + data):
        line += data.count(b"\n", place, match.start())
        place = match.start()
        found.append((line, match[1]))
    return tuple(found)


@functools.lru_cache(maxsize=256)
def _unnumbered(text: bytes) -> tuple[ast.stmt, ...]:
    """Parse imports, with 0 as their line number. Versions of a file, and their imports seen alone, mostly have the same."""
    statements = parse(text).body
    for statement in statements:
        statement.lineno = statement.end_lineno = 0
        for alias in aliases(statement):
            alias.lineno = alias.end_lineno = 0
    return tuple(statements)


def aliases(node: ast.stmt) -> Iterator[ast.alias]:
    """Yield the names of an import; nothing for any other statement."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from node.names
