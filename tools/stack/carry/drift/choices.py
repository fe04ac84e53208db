# SPDX-License-Identifier: Apache-2.0
"""The values that flags of `vllm serve` take, where a tree declares all of them: literals, enumerations, tables of parsers, fields of JSON.

A flag whose values cannot be told for sure is left out: what is said of the others holds.
"""

import ast
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from stack.carry.drift.finding import nearest
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import parse
from stack.carry.drift.settings import Unknown
from stack.carry.drift.tree import Files
from stack.model.ids import TreeId
from stack.store.objects import Objects

_ENGINE = "vllm/engine/arg_utils.py"
_GET = "get_kwargs"
"""`x_kwargs = get_kwargs(XConfig)`, then `add_argument("--flag", **x_kwargs["field"])`."""
_PARSERS = MappingProxyType(
    {"--reasoning-parser": "vllm/reasoning/__init__.py", "--tool-call-parser": "vllm/tool_parsers/__init__.py"}
)
"""These flags take the keys of a table, which their packages have under a name of this ending."""
_TABLE = "_PARSERS_TO_REGISTER"
_ENUMERATIONS = frozenset({"Enum", "StrEnum"})
_AUTO = "auto"
"""Every enumeration of backends takes this, too: the platform chooses."""


_FEW = 12
"""Values that a sentence names."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a flag takes: one of `values`, or JSON with `keys`; None where it takes no such thing."""

    values: frozenset[str] | None = None
    keys: frozenset[str] | None = None


def check_values(objects: Objects, tree: TreeId, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
    """Flags and values of which the tree does not know the value; of JSON, one of its outermost keys.

    Raises:
        StackError: the repository cannot be read.

    """
    known = declared(Files(objects, tree))
    found = {(flag, value): _unknown(flag, value, known[flag]) for flag, value in given if flag in known}
    return MappingProxyType({pair: one for pair, one in found.items() if one is not None})


def _unknown(flag: str, value: str, known: Choices) -> Unknown | None:
    if known.values is not None and not _same(value, known.values):
        return Unknown(flag, f"{flag} does not take {value}: {_near(value, known.values)}", nearest(value, known.values))
    if known.keys is not None and (odd := sorted({*_keys(value)} - known.keys)):
        return Unknown(
            flag, f"the JSON of {flag} has no key {odd[0]}: {_near(odd[0], known.keys)}", nearest(odd[0], known.keys)
        )
    return None


def _same(value: str, known: frozenset[str]) -> bool:
    # vLLM reads some of them in any case, and with dashes: in doubt a value counts as known.
    return _plain(value) in map(_plain, known)


def _plain(value: str) -> str:
    return value.lower().replace("-", "_")


def _near(name: str, known: frozenset[str]) -> str:
    near = nearest(name, known)
    others = f"it takes {', '.join(sorted(known))}" if len(known) <= _FEW else "nothing there is named like it"
    return f"the nearest is {near}" if near else others


def _keys(value: str) -> tuple[str, ...]:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return ()
    return tuple(data) if isinstance(data, dict) else ()


def declared(files: Files) -> Mapping[str, Choices]:
    """What flags of `vllm serve` take, by flag."""
    if not files.is_file(_ENGINE):
        return MappingProxyType({})
    source = _Source(files)
    found = {flag: source.field(of, name) for flag, (of, name) in _flags(source.tree(_ENGINE)).items()}
    found |= {flag: Choices(source.keys(path)) for flag, path in _PARSERS.items()}
    return MappingProxyType({flag: one for flag, one in found.items() if one != Choices()})


def _flags(engine: ast.Module | None) -> dict[str, tuple[str, str]]:
    """The flags that are made of a field of a configuration: its class, and its name."""
    classes: dict[str, str] = {}
    fields: dict[str, tuple[str, str]] = {}
    found: dict[str, tuple[str, str]] = {}
    for node in ast.walk(engine) if engine is not None else ():
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name(get), [ast.Name(of)])) if get == _GET:
                classes[name] = of
            case ast.Assign([ast.Name(name)], ast.Subscript(ast.Name(table), ast.Constant(str(field)))):
                fields[name] = table, field
    for node in ast.walk(engine) if engine is not None else ():
        match node:
            case ast.Call(ast.Attribute(attr="add_argument"), [ast.Constant(str(flag)), *_], keywords):
                expanded = [one.value for one in keywords if one.arg is None]
                table, field = _field(expanded[0], fields) if len(expanded) == 1 else ("", "")
                if table in classes and not any(one.arg in ("choices", "type", "action") for one in keywords):
                    found[flag] = classes[table], field
    return found


def _field(expanded: ast.expr, fields: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    match expanded:
        case ast.Subscript(ast.Name(table), ast.Constant(str(field))):
            return table, field
        case ast.Name(name):
            return fields.get(name, ("", ""))
    return "", ""


class _Source:
    """The Python files of a tree, parsed once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._modules = Modules(files)
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        """A file, None where it is none or is no Python."""
        if path not in self._trees:
            try:
                self._trees[path] = parse(self._files.read(path) or b"")
            except SyntaxError:
                self._trees[path] = None
        return self._trees[path]

    def keys(self, path: str) -> frozenset[str] | None:
        """The keys of the one table of parsers in a file."""
        tables = [
            node.value
            for node in self._body(path)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(node.value, ast.Dict)
            and _named(node).endswith(_TABLE)
        ]
        return _strings(tables[0].keys) if len(tables) == 1 else None

    def field(self, of: str, name: str) -> Choices:
        """What the field of a configuration takes, whose class the engine imports."""
        found = self._class(_ENGINE, of)
        if found is None:
            return Choices()
        path, definition = found
        annotations = [each.annotation for each in _annotated(definition) if _named(each) == name]
        return self._annotation(path, annotations[0]) if len(annotations) == 1 else Choices()

    def _annotation(self, path: str, annotation: ast.expr) -> Choices:
        parts = [part for part in _union(annotation) if not (isinstance(part, ast.Constant) and part.value is None)]
        values = [self._values(path, part) for part in parts]
        if parts and all(one is not None for one in values):
            return Choices(functools.reduce(frozenset.union, (one for one in values if one is not None)))
        keys = [self._names(path, part.id) for part in parts if isinstance(part, ast.Name)]
        known = [one for one in keys if one]
        return Choices(keys=known[0]) if len(known) == 1 else Choices()

    def _values(self, path: str, part: ast.expr) -> frozenset[str] | None:
        """The values of a part of a union: a literal, a name that stands for one, an enumeration."""
        match part:
            case ast.Subscript(ast.Name("Literal"), ast.Tuple(elements)):
                return _strings(elements)
            case ast.Subscript(ast.Name("Literal"), element):
                return _strings([element])
            case ast.Name(name):
                assigned = [node.value for node in self._body(path) if isinstance(node, ast.Assign) and _named(node) == name]
                if len(assigned) == 1 and isinstance(assigned[0], ast.Subscript):
                    return self._values(path, assigned[0])
                found = self._class(path, name)
                return _members(found[1]) if found is not None else None
        return None

    def _names(self, path: str, name: str) -> frozenset[str] | None:
        """The fields of a class that has nothing above it."""
        found = self._class(path, name)
        if found is None or found[1].bases:
            return None
        return frozenset(_named(each) for each in _annotated(found[1]))

    def _class(self, path: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """A class that a file defines or imports, and the file that has it."""
        resolved = self._modules.resolve(path.removesuffix(".py").removesuffix("/__init__"), name)
        if resolved is None or resolved[1] is None:
            return None
        file = self._modules.file(resolved[0])
        own = [each for each in self._body(file or "") if isinstance(each, ast.ClassDef) and each.name == resolved[1].name]
        return (file, own[0]) if file is not None and len(own) == 1 else None

    def _body(self, path: str) -> list[ast.stmt]:
        tree = self.tree(path)
        return tree.body if tree is not None else []


def _named(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _annotated(definition: ast.ClassDef) -> list[ast.AnnAssign]:
    return [each for each in definition.body if isinstance(each, ast.AnnAssign)]


def _union(annotation: ast.expr) -> list[ast.expr]:
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return [*_union(annotation.left), *_union(annotation.right)]
    return [annotation]


def _strings(nodes: Iterable[ast.expr | None]) -> frozenset[str] | None:
    """Texts, None where one of them is something else."""
    values = [node.value if isinstance(node, ast.Constant) else None for node in nodes]
    return frozenset(str(one) for one in values) if all(isinstance(one, str) for one in values) else None


def _members(definition: ast.ClassDef) -> frozenset[str] | None:
    if not any(isinstance(base, ast.Name) and base.id in _ENUMERATIONS for base in definition.bases):
        return None
    return frozenset({_AUTO, *(_named(each) for each in definition.body if isinstance(each, ast.Assign))})
