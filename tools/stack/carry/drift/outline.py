# SPDX-License-Identifier: Apache-2.0
"""What a Python file binds at its top level, read without importing it."""

import ast
import re
import warnings
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

LARGEST = 4_000_000
"""Bytes of a file that is parsed; one that is larger was written by a program."""
_DYNAMIC = re.compile(
    rb"^(?:async )?def __getattr__\b|\b__getattr__\s*[,=]|import .*\b__getattr__\b|\bglobals\(\)\s*(?:\[|\.update|\.setdefault|$|\))"
    rb"|\bglobals\(\),|\b(?:locals|vars)\(\)\s*(?:\[|\.update)|sys\.modules\[__name__\]|^\s*exec\(|\b(?:module|mod|_module)\.__dict__\b",
    re.MULTILINE,
)
_HINTS = (b"__getattr__", b"globals()", b"locals()", b"vars()", b"sys.modules[", b"exec(", b".__dict__")
_GLOBAL = re.compile(rb"^\s+global\s+(.+)$", re.MULTILINE)
_QUOTES = (b'"""', b"'''")
_OPENING, _CLOSING = re.compile(rb"[(\[{]"), re.compile(rb"[)\]}]")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Outline:
    """What is kept of a file: its imports, its definitions without their bodies, the other names that it binds."""

    imports: tuple[ast.Import | ast.ImportFrom, ...]
    definitions: tuple[Definition, ...]
    names: frozenset[str]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Defined:
    """The names that lines at the left edge of a file define or assign, and those of its classes."""

    names: frozenset[bytes]
    classes: frozenset[bytes]


@dataclass(slots=True)
class Known:
    """What has been read of files, by their blobs: shared by the checks of trees that are alike."""

    outlines: dict[str, Outline | None] = field(default_factory=dict)
    defined: dict[str, Defined] = field(default_factory=dict)


def outline(data: bytes) -> Outline | None:
    """What a file binds at its top level; None where it is not Python."""
    tree = _parsed(data)
    if tree is None:
        return None
    imports: list[ast.Import | ast.ImportFrom] = []
    definitions: list[Definition] = []
    names = {
        name.strip() for line in _GLOBAL.findall(data) for name in line.decode("utf-8", "replace").partition("#")[0].split(",")
    }
    for statement in statements(tree.body, functions=False):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        elif isinstance(statement, Definition):
            if not any("overload" in ast.dump(decorator) for decorator in statement.decorator_list):
                definitions.append(_without_bodies(statement))
        else:
            names.update(_stored(statement))
    return Outline(
        tuple(imports),
        tuple(definitions),
        frozenset(names),
        any(hint in data for hint in _HINTS) and _DYNAMIC.search(data) is not None,
    )


def _parsed(data: bytes) -> ast.Module | None:
    """A file without what is in its functions, where that can be told from the text: bodies are most of what there is to parse."""
    lines = bodiless(data.split(b"\n"))
    for text in (None if lines is None else b"\n".join(lines), data):
        try:
            if text is not None:
                return parse(text)
        except SyntaxError:
            continue
    return None


def bodiless(lines: list[bytes], wanted: Set[int] = frozenset()) -> list[bytes] | None:
    """As many lines of Python, with functions that do nothing unless a `wanted` line is in them (by its place in the list).

    None where indentation does not tell where a function ends: the text has to be read whole.
    """
    kept = list(lines)
    number = 0
    while number < len(lines):
        line = lines[number]
        text = line.lstrip(b" ")
        number += 1
        if not text.startswith((b"def ", b"async def ")):
            continue
        column = len(line) - len(text)
        first = _after_header(lines, number - 1)
        if first is None:
            return None
        number = _after_body(lines, first, column)
        if number == first or not wanted.isdisjoint(range(first, number)):
            continue
        if sum(each.count(quotes) for each in lines[first:number] for quotes in _QUOTES) % 2:
            return None  # it ends inside of a string
        kept[first:number] = [b" " * column + b" pass", *[b""] * (number - first - 1)]
    return kept


def _after_header(lines: list[bytes], number: int) -> int | None:
    """The line behind the one that closes the brackets of a function's first line; None where none does."""
    depth = 0
    for place in range(number, len(lines)):
        code = lines[place].partition(b"#")[0]
        depth += len(_OPENING.findall(code)) - len(_CLOSING.findall(code))
        if depth <= 0:
            return place + 1 if depth == 0 else None
    return None


def _after_body(lines: list[bytes], first: int, column: int) -> int:
    """The line behind a body that begins at a line, or would: of a function in that column."""
    if not lines[first - 1].partition(b"#")[0].rstrip().endswith(b":"):
        return first  # it stands in the line of its header
    for place in range(first, len(lines)):
        text = lines[place].lstrip(b" ")
        if text and len(lines[place]) - len(text) <= column:
            return place
    return len(lines)


def _without_bodies(definition: Definition) -> Definition:
    if isinstance(definition, ast.ClassDef):
        definition.body = [_without_bodies(each) for each in definition.body if isinstance(each, Definition)]
    else:
        definition.body = []
    return definition


def parse(data: bytes) -> ast.Module:
    """The syntax tree of a file.

    Raises:
        SyntaxError: it is not Python.

    """
    if len(data) > LARGEST:
        raise SyntaxError("too large")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an upstream writes is not ours to warn of
            return ast.parse(data)
    except (ValueError, RecursionError, MemoryError) as bad:
        raise SyntaxError(str(bad) or "too deeply nested") from bad


def statements(body: list[ast.stmt], *, functions: bool) -> Iterator[ast.stmt]:
    """All statements of a module, those in conditions and the like too; those of functions and classes on request."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, Definition) and not functions:
            continue
        inner: list[ast.AST] = []
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            found = getattr(node, part, None)
            if isinstance(found, list):
                inner += found
        stack += reversed(inner)


def _stored(statement: ast.stmt) -> Iterator[str]:
    """The names that one statement itself binds."""
    for kind, value in ast.iter_fields(statement):
        if kind in ("body", "handlers", "orelse", "finalbody", "cases"):
            if kind == "handlers":
                yield from (handler.name for handler in value if handler.name)
            elif kind == "cases":
                yield from (name for case in value for name in _captures(case.pattern))
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from (
                    node.id for node in ast.walk(part) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                )


def _captures(pattern: ast.pattern) -> Iterator[str]:
    for node in ast.walk(pattern):
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):
            yield name
