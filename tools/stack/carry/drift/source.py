# SPDX-License-Identifier: Apache-2.0
"""A Python file with added lines, prepared for the drift checks."""

import ast
import builtins
import symtable
import warnings
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from stack.carry.drift.modules import Imported, Modules

BUILTINS = frozenset(dir(builtins)) | frozenset(
    {"__file__", "__path__", "__builtins__", "__class__", "__annotations__", "__loader__", "reveal_type"}
)

Parents = tuple[ast.AST, ...]
"""The nodes around a node, the outermost first."""


@dataclass(frozen=True, slots=True)
class Scopes:
    """The names that a file binds: in any scope, other than by an import (`otherwise`), and inside functions (`inner`)."""

    bound: Set[str]
    otherwise: frozenset[str]
    inner: frozenset[str]


def scopes(data: bytes, path: str) -> Scopes | None:
    """Return the names of a file; None if Python cannot compile it."""
    bound: set[str] = set()
    otherwise: set[str] = set()
    inner: set[str] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stack = [symtable.symtable(data, path, "exec")]  # type: ignore[arg-type]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    while stack:
        table = stack.pop()
        stack += table.get_children()
        for symbol in table.get_symbols():
            assigned = symbol.is_parameter() or symbol.is_assigned()
            if assigned:
                otherwise.add(symbol.get_name())
            if assigned or symbol.is_imported():
                (inner if table.get_type() == "function" else bound).add(symbol.get_name())
    return Scopes(frozenset(bound | inner), frozenset(otherwise), frozenset(inner))


@dataclass(slots=True)
class Source:
    """A file, its added lines, the modules of its tree (`before`: of the old base) and the names in it."""

    path: str
    added: frozenset[int]
    modules: Modules
    before: Modules | None
    tree: ast.Module
    names: Scopes
    imports: dict[str, list[Imported]] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    """Names whose import is reported as broken; their uses are not reported again."""

    def is_only_imported(self, name: str) -> bool:
        """Return whether only imports bind a name, everywhere in the file."""
        return name in self.imports and name not in self.names.otherwise and name not in self.broken


def chain(node: ast.expr) -> tuple[str, list[str]] | None:
    """Return the names of `a.b.c`, as the first and a list of the others; None for any other expression."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node.id, attributes[::-1]) if isinstance(node, ast.Name) else None


def words(node: ast.AST) -> Iterator[str]:
    """Return the names in a syntax tree."""
    return (
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    )
