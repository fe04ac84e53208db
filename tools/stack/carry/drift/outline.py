# SPDX-License-Identifier: Apache-2.0
"""Read the names that a Python file binds at its top level, without importing it."""

import ast
import re
import warnings
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from stack.carry.drift.reexports import Imports

LARGEST = 4_000_000
"""In bytes; larger files are generated code and are not parsed."""
_DYNAMIC = re.compile(
    rb"^(?:async )?def __getattr__\b|\b__getattr__\s*[,=]|import .*\b__getattr__\b|\bglobals\(\)\s*(?:\[|\.update|\.setdefault|$|\))"
    rb"|\bglobals\(\),|\b(?:locals|vars)\(\)\s*(?:\[|\.update)|sys\.modules\[__name__\]|^\s*exec\(|\b(?:module|mod|_module)\.__dict__\b",
    re.MULTILINE,
)
_HINTS = (b"__getattr__", b"globals()", b"locals()", b"vars()", b"sys.modules[", b"exec(", b".__dict__")
_REST = re.compile(rb"\s*[^\n]*")
_GLOBAL = re.compile(rb"^\s+global\s+(.+)$", re.MULTILINE)
_QUOTES = (b'"""', b"'''")
_OPENING, _CLOSING = re.compile(rb"[(\[{]"), re.compile(rb"[)\]}]")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Outline:
    """A file's imports, its definitions without bodies, and the other names that it binds; `dynamic`: it may make further names."""

    imports: tuple[ast.Import | ast.ImportFrom, ...]
    definitions: tuple[Definition, ...]
    names: frozenset[str]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Defined:
    """The names that unindented lines of a file define or assign, and the names of its classes."""

    names: frozenset[bytes]
    classes: frozenset[bytes]


@dataclass(slots=True)
class Known:
    """A cache of parsed files, by blob id; the checks of similar trees share it."""

    outlines: dict[str, Outline | None] = field(default_factory=dict)
    defined: dict[str, Defined] = field(default_factory=dict)
    imports: dict[str, Imports] = field(default_factory=dict)


def outline(data: bytes) -> Outline | None:
    """Return the top-level names of a file; None if it is not valid Python."""
    tree = _parsed(data)
    if tree is None:
        return None
    imports: list[ast.Import | ast.ImportFrom] = []
    definitions: list[Definition] = []
    names = {
        name.strip() for line in _GLOBAL.findall(data) for name in line.decode("utf-8", "replace").partition("#")[0].split(",")
    }
    overloads = b"overload" in data
    for statement in statements(tree.body, functions=False):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        elif isinstance(statement, Definition):
            if not (overloads and any("overload" in ast.dump(decorator) for decorator in statement.decorator_list)):
                definitions.append(_without_bodies(statement))
        else:
            names.update(_stored(statement))
    return Outline(
        tuple(imports),
        tuple(definitions),
        frozenset(names),
        any(_DYNAMIC.search(text) for text in _around_hints(data)),
    )


def _around_hints(data: bytes) -> Iterator[bytes]:
    """Yield the line of each hint that a file makes names, with the next line that is not blank if the hint ends its line."""
    for hint in _HINTS:
        place = data.find(hint)
        while place >= 0:
            after = place + len(hint)
            rest = _REST.match(data, after)
            yield data[data.rfind(b"\n", 0, place) + 1 : rest.end() if rest else after]
            place = data.find(hint, after)


def _parsed(data: bytes) -> ast.Module | None:
    """Parse a file, if possible without the bodies of its functions, which are most of its text; None if it is not valid."""
    lines = bodiless(data.split(b"\n"))
    for text in (None if lines is None else b"\n".join(lines), data):
        try:
            if text is not None:
                return parse(text)
        except SyntaxError:
            continue
    return None


def bodiless(lines: list[bytes], wanted: Set[int] = frozenset()) -> list[bytes] | None:
    """Replace the body of each function without a `wanted` line (from 0) by `pass`; keep the number of lines.

    Return None if indentation does not show where a function ends: then the whole text must be parsed.
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
        body = b"\n".join(lines[first:number])
        if sum(map(body.count, _QUOTES)) % 2:
            return None  # The body ends inside a string.
        kept[first:number] = [b" " * column + b" pass", *[b""] * (number - first - 1)]
    return kept


def _after_header(lines: list[bytes], number: int) -> int | None:
    """Return the line after a function's header, whose brackets may span several lines; None if they are not closed."""
    depth = 0
    for place in range(number, len(lines)):
        code = lines[place].partition(b"#")[0]
        depth += len(_OPENING.findall(code)) - len(_CLOSING.findall(code))
        if depth <= 0:
            return place + 1 if depth == 0 else None
    return None


def _after_body(lines: list[bytes], first: int, column: int) -> int:
    """Return the line after the body of a function in that column; `first` is the line after the header."""
    if not lines[first - 1].partition(b"#")[0].rstrip().endswith(b":"):
        return first  # The body is on the line of the header.
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
    """Parse a file.

    Raises:
        SyntaxError: it is not Python.

    """
    if len(data) > LARGEST:
        raise SyntaxError("too large")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Warnings about upstream's code do not concern the user.
            return ast.parse(data)
    except (ValueError, RecursionError, MemoryError) as bad:
        raise SyntaxError(str(bad) or "too deeply nested") from bad


def statements(body: list[ast.stmt], *, functions: bool) -> Iterator[ast.stmt]:
    """Yield all statements of a module, also nested ones; those in functions and classes only if `functions`."""
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
    """Yield the names that one statement itself binds, without its nested statements."""
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
