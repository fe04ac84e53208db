# SPDX-License-Identifier: Apache-2.0
"""Check the imports, names, attributes and calls in added Python lines."""

import ast
import bisect
import functools
import itertools
import re
import sys
from collections.abc import Iterator

from stack.carry.drift import calls, owners
from stack.carry.drift.finding import Drift, nearest, touches
from stack.carry.drift.glance import glance
from stack.carry.drift.modules import Modules
from stack.carry.drift.naming import Variables
from stack.carry.drift.outline import LARGEST, Definition, parse, statements
from stack.carry.drift.source import BUILTINS, Parents, Source, chain, scopes, words
from stack.carry.drift.tree import Files

_LENIENT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException", "AttributeError"})
_CHECKED = (ast.Attribute, ast.Name, ast.Call, ast.Constant)
_NEWER = re.compile(r"^\s*requires-python\s*=.*>=?\s*3\.(\d+)", re.MULTILINE)


def check(
    path: str,
    added: frozenset[int],
    modules: Modules,
    before: Modules | None,
    variables: Variables,
    upstream: Files | None,
    *,
    hasty: bool = False,
) -> Iterator[Drift]:
    """Find drift in the added lines of one file; `upstream` are the files of the new base without patches.

    `hasty`: accept the result of a quick look, which may find too much.
    """
    data = modules.files.read(path)
    if data is None or len(data) > LARGEST:
        return
    source = glance(path, added, modules, before, upstream)
    if source is not None:
        noted = Variables()
        seen = list(itertools.islice(_File(source, noted, hints=False).check(), None if hasty else 1))
        if not seen or hasty:
            variables.learn(noted)
            yield from seen
            return
    try:
        tree = parse(data)
    except SyntaxError as bad:
        if not _for_newer_python(modules):
            yield Drift(path, bad.lineno, f"this is no valid Python ({bad.msg}): look at how the lines around it were merged")
        return
    names = scopes(data, path)
    if names is not None:
        yield from _File(Source(path, added, modules, before, tree, names), variables).check()


def _for_newer_python(modules: Modules) -> bool:
    """Return whether the tree requires a newer Python than this one, whose syntax may not parse here."""
    found = _NEWER.search(modules.files.text("pyproject.toml"))
    return found is not None and int(found[1]) > sys.version_info.minor


class _File:
    def __init__(self, source: Source, variables: Variables, *, hints: bool = True) -> None:
        self.source, self.variables, self.hints = source, variables, hints
        self.path, self.added, self.modules, self.before = source.path, source.added, source.modules, source.before
        self.tree, self.bound = source.tree, source.names.bound
        self.stars = False

    def check(self) -> Iterator[Drift]:
        seen: list[ast.Import | ast.ImportFrom] = []
        for statement in statements(self.tree.body, functions=True):
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for name, imported in self.modules.bindings(self.path, statement):
                    self.source.imports.setdefault(name, []).append(imported)
                    self.stars = self.stars or name == "*"
                if touches(self.added, statement.lineno, statement.end_lineno):
                    seen.append(statement)
        fallbacks = self._fallbacks() if seen else {}
        for statement in seen:
            for name, drift in self._import(statement):
                if not any(self._resolves(other) for other in fallbacks.get(id(statement), ())):
                    self.source.broken.add(name)
                    yield drift
        for parents, node in self._added_nodes():
            if isinstance(node, _CHECKED):
                yield from self._node(parents, node)

    # imports

    def _import(self, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Drift]]:
        """Find imports that do not resolve, with the name that each would have bound."""
        whole = isinstance(statement, ast.ImportFrom) and statement.lineno in self.added
        for alias in statement.names:
            if not whole and not touches(self.added, alias.lineno, alias.end_lineno):
                continue
            if isinstance(statement, ast.Import):
                place = self.modules.place(self.path, 0, alias.name)
                problem = place and self._module_problem(place)
            else:
                place = self.modules.place(self.path, statement.level, statement.module or "")
                problem = place and (self._module_problem(place) or self._name_problem(place, alias.name))
            if problem:
                yield alias.asname or alias.name.partition(".")[0], Drift(self.path, alias.lineno, problem)

    def _resolves(self, statement: ast.Import | ast.ImportFrom) -> bool:
        """Return whether an import works, as far as the tree shows; third-party imports may."""
        for alias in statement.names:
            if isinstance(statement, ast.Import):
                place = self.modules.place(self.path, 0, alias.name)
                wrong = place and self.modules.missing(place, self.before)
            else:
                place = self.modules.place(self.path, statement.level, statement.module or "")
                wrong = place and (
                    self.modules.missing(place, self.before) or self.modules.lacks(place, alias.name, self.before)
                )
            if wrong:
                return False
        return True

    def _fallbacks(self) -> dict[int, list[ast.Import | ast.ImportFrom]]:
        """Map each import in a `try` that handles its failure to the imports of the other branches."""
        others: dict[int, list[ast.Import | ast.ImportFrom]] = {}
        for statement in statements(self.tree.body, functions=True):
            if not isinstance(statement, ast.Try) or not any(_survives(handler) for handler in statement.handlers):
                continue
            arms = [_imports(statement.body), *(_imports(handler.body) for handler in statement.handlers)]
            for arm in arms:
                for each in arm:
                    others.setdefault(id(each), []).extend(item for other in arms if other is not arm for item in other)
        return others

    def _module_problem(self, place: str) -> str | None:
        if not self.modules.missing(place, self.before):
            return None
        parts = place.split("/")
        gone = next(
            above
            for depth in range(1, len(parts) + 1)
            if self.modules.missing(above := "/".join(parts[:depth]), self.before) or above == place
        )
        near = self.modules.nearest(place) if self.hints else None
        hint = f"the nearest is {near}" if near else "nothing is named like it"
        part = f" ({_dotted(gone)} is gone)" if gone != place else ""
        return f"there is no module {_dotted(place)}{part}: {hint}"

    def _name_problem(self, place: str, name: str) -> str | None:
        if name == "*" or not self.modules.lacks(place, name, self.before):
            return None
        return f"{_dotted(place)} has no {name}: {self._whereabouts(place, name)}"

    def _whereabouts(self, place: str, name: str) -> str:
        elsewhere = self.modules.elsewhere(name) if self.hints else []
        if elsewhere:
            more = f" and in {len(elsewhere) - 1} more" if len(elsewhere) > 1 else ""
            return f"it is defined in {nearest(place, elsewhere) or elsewhere[0]}{more}"
        near = nearest(name, self.modules.names(place)) if self.hints else None
        return f"the nearest name there is {near}" if near else "no function or class of the tree has that name"

    # names, attributes and calls in added lines

    def _added_nodes(self) -> Iterator[tuple[Parents, ast.AST]]:
        """Yield the nodes that overlap added lines, each with the nodes around it; an attribute chain is one node."""
        order = sorted(self.added)
        stack: list[tuple[Parents, ast.AST]] = [((), node) for node in reversed(self.tree.body)]
        while stack:
            parents, node = stack.pop()
            first = getattr(node, "lineno", None)
            if first is not None:
                if isinstance(node, Definition) and node.decorator_list:
                    first = node.decorator_list[0].lineno
                if not _any_between(order, first, node.end_lineno):  # type: ignore[attr-defined]
                    continue
            yield parents, node
            inner = (*parents, node)
            if isinstance(node, ast.Attribute):
                while isinstance(node, ast.Attribute):
                    node = node.value
                stack.append((inner, node))
            else:
                stack += [(inner, child) for child in _children_reversed(node)]

    def _node(self, parents: Parents, node: ast.AST) -> Iterator[Drift]:
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Name):
            yield from self._name(parents, node)
        elif isinstance(node, ast.Call):
            yield from calls.check(self.source, parents, node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.variables.string(self.path, parents, node, node.value)

    def _name(self, parents: Parents, node: ast.Name) -> Iterator[Drift]:
        if isinstance(node.ctx, ast.Store) and owners.pattern(owners.NAME).fullmatch(node.id):
            self.variables.declared.add(node.id)
        if node.lineno not in self.added or node.id in self.bound or node.id in BUILTINS or not isinstance(node.ctx, ast.Load):
            return
        if node.id.startswith("__"):  # In a class, Python mangles such a name.
            return
        if self.stars or self._makes_names or any(_catches(parent, "NameError") for parent in parents):
            return
        if not self._was_bound(node.id):
            return
        self.source.broken.add(node.id)
        elsewhere = self.modules.elsewhere(node.id) if self.hints else []
        hint = f"it is defined in {elsewhere[0]}" if elsewhere else "look for where the file had it from"
        yield Drift(self.path, node.lineno, f"nothing in this file binds {node.id}: {hint}")

    def _was_bound(self, name: str) -> bool:
        """Return whether an unbound name is a mistake: the old file bound it, or no other name in the file is unbound.

        A template that is filled in before it runs has unbound names. A file that only patches made cannot have lost a binding.
        """
        if self.before is not None:
            old = self.before.files.read(self.path)
            names = scopes(old, self.path) if old is not None else None
            return names is not None and name in names.bound
        return self._upstream_binds_all

    @functools.cached_property
    def _upstream_binds_all(self) -> bool:
        if all(statement.lineno in self.added for statement in self.tree.body):
            return False
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and node.lineno not in self.added}
        return names <= self.bound | BUILTINS

    @property
    def _makes_names(self) -> bool:
        module = self.modules.module(self.path)
        return module is None or module.dynamic

    def _attribute(self, node: ast.Attribute) -> Iterator[Drift]:
        names = chain(node)
        if names is None:
            return
        root, attributes = names
        for holder, attribute in itertools.pairwise([root, *attributes]):
            if holder == "envs" and owners.pattern(owners.NAME).fullmatch(attribute):
                if isinstance(node.ctx, ast.Load) or attribute != node.attr:
                    self.variables.use(attribute, self.path, node.end_lineno or node.lineno)
                return
        place = self._module_of(root)
        if place is not None:
            yield from self._attributes(node, place, attributes)

    def _attributes(self, node: ast.Attribute, place: str, attributes: list[str]) -> Iterator[Drift]:
        for position, attribute in enumerate(attributes):
            last = position == len(attributes) - 1
            if not self.modules.exists(place) or (last and not isinstance(node.ctx, ast.Load)):
                return
            if self.modules.lacks(place, attribute, self.before):
                if not self._guarded(attribute):
                    yield Drift(
                        self.path,
                        node.end_lineno or node.lineno,
                        f"module {_dotted(place)} has no {attribute}: {self._whereabouts(place, attribute)}",
                    )
                return
            found = self.modules.resolve(place, attribute)
            if found is None or found[1] is not None:
                return
            place = found[0]

    def _module_of(self, name: str) -> str | None:
        """Return the module that a name means everywhere in the file; None if it may mean anything else."""
        known = self.source.imports.get(name, [])
        if not self.source.is_only_imported(name) or any(self.modules.is_plain(imported) for imported in known):
            return None
        found = {self.modules.follow(imported) for imported in known}
        if len(found) != 1:
            return None
        single = found.pop()
        return single[0] if single is not None and single[1] is None else None

    def _guarded(self, attribute: str) -> bool:
        """Return whether the file has that attribute's name as a string, or sets the attribute itself."""
        word = re.escape(attribute)
        text = self.modules.files.text(self.path)
        return re.search(rf"[\"']{word}[\"']|\.{word}\s*=[^=]", text) is not None


def _children_reversed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what `ast.iter_child_nodes` yields, the last one first; leave out operators and contexts, which no check looks at."""
    for name in reversed(node._fields):
        value = getattr(node, name, None)
        if isinstance(value, list):
            yield from (each for each in reversed(value) if isinstance(each, ast.AST))
        elif isinstance(value, ast.AST) and value._fields:
            yield value


def _imports(body: list[ast.stmt]) -> list[ast.Import | ast.ImportFrom]:
    return [each for each in statements(body, functions=False) if isinstance(each, ast.Import | ast.ImportFrom)]


def _survives(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or any(name in _LENIENT for name in words(handler.type))


def _catches(node: ast.AST, error: str) -> bool:
    return isinstance(node, ast.Try) and any(each.type is None or error in words(each.type) for each in node.handlers)


def _any_between(order: list[int], first: int, last: int | None) -> bool:
    place = bisect.bisect_left(order, first)
    return place < len(order) and order[place] <= (last or first)


def _dotted(place: str) -> str:
    return place.replace("/", ".")
