# SPDX-License-Identifier: Apache-2.0
"""Find definitions in a Python file by its syntax tree, and write down their signatures. Nothing is imported."""

import ast
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stack.carry.drift import signatures
from stack.carry.drift.outline import parse, statements

Found = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_KEPT = 64
"""Parsed files that are kept."""
VALUE = "value"
"""The signature of a name that is assigned."""


@dataclass(slots=True)
class Parsed:
    """A cache of parsed files, by blob id; the judgements of many trees share it."""

    known: OrderedDict[str, ast.Module | None] = field(default_factory=OrderedDict)

    def get(self, blob: str, data: bytes) -> ast.Module | None:
        """Return a file's syntax tree; None if it is not valid Python, or too large."""
        if blob not in self.known:
            try:
                self.known[blob] = parse(data)
            except SyntaxError:
                self.known[blob] = None
            if len(self.known) > _KEPT:
                self.known.popitem(last=False)
        self.known.move_to_end(blob)
        return self.known[blob]


def definitions(tree: ast.Module | ast.ClassDef, name: str) -> tuple[Found, ...]:
    """Return what binds a name in a module or a class: definitions and assignments, also below `if` and `try`."""
    found = [each for each in statements(tree.body, functions=False) if name in _names(each)]
    kept = [each for each in found if not _is_overload(each)]
    return tuple(each for each in kept if isinstance(each, Found))


def members(tree: ast.Module, qualified: str) -> tuple[Found, ...]:
    """Return what binds a name with dots; empty if nothing does."""
    inside: list[ast.Module | ast.ClassDef] = [tree]
    found: tuple[Found, ...] = ()
    for part in qualified.split("."):
        found = tuple(each for holder in inside for each in definitions(holder, part))
        inside = [each for each in found if isinstance(each, ast.ClassDef)]
    return found


def source(data: bytes, found: Sequence[Found]) -> bytes:
    """Return the lines of definitions, with their decorators."""
    lines = data.split(b"\n")
    return b"\n".join(line for first, last in map(_span, found) for line in lines[first - 1 : last]) + b"\n"


def signature(found: Sequence[Found]) -> str:
    """Return how a replaced attribute is called: its decorators, parameters without annotations, and base classes."""
    return " or ".join(dict.fromkeys(map(_signature, found)))


def line_of(found: Sequence[Found]) -> int:
    """Return the line of the first definition, behind its decorators."""
    return found[0].lineno


def _signature(found: Found) -> str:
    if isinstance(found, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in found.bases)
        start = next((each for each in definitions(found, "__init__") if isinstance(each, _FUNCTIONS)), None)
        return f"{_decorators(found)}class ({bases})" + (f" __init__ {signatures.shown(start)}" if start is not None else "")
    if isinstance(found, _FUNCTIONS):
        word = "async def" if isinstance(found, ast.AsyncFunctionDef) else "def"
        return f"{_decorators(found)}{word} {signatures.shown(found)}"
    return VALUE


def _decorators(found: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    bare = (each.func if isinstance(each, ast.Call) else each for each in found.decorator_list)
    return "".join(f"@{ast.unparse(each)} " for each in bare)


def _is_overload(statement: ast.stmt) -> bool:
    decorators = statement.decorator_list if isinstance(statement, _FUNCTIONS) else ()
    return any("overload" in ast.unparse(each) for each in decorators)


def _names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that one statement binds by a definition or an assignment."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def _span(found: Found) -> tuple[int, int]:
    first = found.lineno
    if isinstance(found, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = min([first, *(each.lineno for each in found.decorator_list)])
    return first, found.end_lineno or found.lineno
