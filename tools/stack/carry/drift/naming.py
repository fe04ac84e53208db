# SPDX-License-Identifier: Apache-2.0
"""Find environment variables in Python code: strings that name one, and whether the code reads or sets it."""

import ast
import re
from dataclasses import dataclass, field

from stack.carry.drift import owners
from stack.carry.drift.source import Parents, words
from stack.carry.drift.tree import ASIDE

_READERS = re.compile(r"env", re.IGNORECASE)
_WRITERS = frozenset({"setenv", "setdefault", "putenv", "update", "delenv", "unsetenv"})


@dataclass(slots=True)
class Variables:
    """The environment variables in added lines: the places that use each, and those that are read or declared there."""

    used: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)

    def use(self, name: str, path: str, line: int) -> None:
        """Note that a line relies on a variable."""
        self.used.setdefault(name, []).append((path, line))

    def learn(self, others: "Variables") -> None:
        """Add the variables of another collection."""
        for name, places in others.used.items():
            self.used.setdefault(name, []).extend(places)
        self.declared |= others.declared

    def string(self, path: str, parents: Parents, node: ast.Constant, value: str) -> None:
        """Note the variables that a string in an added line names."""
        aside = path.partition("/")[0] in ASIDE
        if parents and isinstance(parents[-1], ast.Expr):  # A docstring.
            return
        if not owners.pattern(owners.NAME).fullmatch(value):
            for name in owners.pattern(owners.SET).findall(value) if not aside else ():
                self.use(name, path, node.lineno)
            return
        named = _is_variable(parents, node)
        if named:
            self.use(value, path, node.lineno)
        # A name in any other place of the sources, such as a list, counts as read.
        if _reads(parents, node) or not (named or aside):
            self.declared.add(value)


def _reads(parents: Parents, node: ast.Constant) -> bool:
    """Return whether the code around a variable's name reads or declares it."""
    above = parents[-1] if parents else None
    if isinstance(above, ast.Call):
        called = set(words(above.func))
        return any(_READERS.search(word) for word in called) and not _WRITERS & called
    if isinstance(above, ast.Subscript):
        return isinstance(above.ctx, ast.Load)
    if isinstance(above, ast.Compare):
        return any(isinstance(operator, ast.In | ast.NotIn) for operator in above.ops)
    if isinstance(above, ast.Dict):
        return any(key is node and isinstance(value, ast.Lambda) for key, value in zip(above.keys, above.values, strict=True))
    return isinstance(above, ast.Assign | ast.AnnAssign)


def _is_variable(parents: Parents, node: ast.Constant) -> bool:
    """Return whether a string in capitals certainly is a variable's name; backends and macros have similar names."""
    above = parents[-1] if parents else None
    if isinstance(above, ast.Dict):
        values = [value for key, value in zip(above.keys, above.values, strict=True) if key is node]
        return bool(values) and _is_text(values[0]) and _is_environment(parents)
    around = above.func if isinstance(above, ast.Call) else above.value if isinstance(above, ast.Subscript) else None
    if isinstance(above, ast.Compare):
        around = above.comparators[0]
    return around is not None and _mentions(around)


def _is_environment(parents: Parents) -> bool:
    """Return whether a dict (the last of `parents`) is passed as a process's environment, or has such a name."""
    for parent in reversed(parents):
        if isinstance(parent, ast.Dict) and any(
            key is None and _mentions(value) for key, value in zip(parent.keys, parent.values, strict=True)
        ):
            return True
        if isinstance(parent, ast.keyword):
            return _READERS.search(parent.arg or "") is not None
        if isinstance(parent, ast.Call):
            return _mentions(parent.func)
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            # A constant in capitals is a table of variables, which may list old ones, too.
            return any(_mentions(target) and not ast.unparse(target).isupper() for target in targets)
        if isinstance(parent, ast.stmt):
            return False
    return False


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "str"
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _mentions(node: ast.AST) -> bool:
    return any(_READERS.search(word) for word in words(node))
