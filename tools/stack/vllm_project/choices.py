# SPDX-License-Identifier: Apache-2.0
"""Read the values that flags of `vllm serve` take: literals, enumerations, tables of parsers, fields of JSON.

A flag is left out unless the tree certainly declares all of its values.
"""

import ast
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from stack.base.did_you_mean import slip
from stack.carry.drift.finding import nearest
from stack.carry.drift.modules import Modules
from stack.carry.drift.outline import parse
from stack.carry.drift.tree import Files
from stack.projects import Unknown
from stack.vllm_project.flags import ENGINE

_GET = "get_kwargs"
"""`x_kwargs = get_kwargs(XConfig)`, then `add_argument("--flag", **x_kwargs["field"])`."""
_PARSERS = MappingProxyType(
    {"--reasoning-parser": "vllm/reasoning/__init__.py", "--tool-call-parser": "vllm/tool_parsers/__init__.py"}
)
"""These flags take the keys of a table in their packages, whose name ends with `_TABLE`."""
_TABLE = "_PARSERS_TO_REGISTER"
_ENUMERATIONS = frozenset({"Enum", "StrEnum"})
_AUTO = "auto"
"""A flag with an enumeration of backends takes this, too: the platform then chooses."""


_NUMBER = re.compile(r"[+-]?\d[\d_]*(?:\.\d+)?[kKmMgGtT]?|auto|none", re.IGNORECASE)
"""Whole numbers, and the other forms that some flags for them take (vllm/utils/argparse_utils.py, 0.32)."""
_TEXT = re.compile(r"[\w.+-]{1,60}", re.ASCII)
"""Values that are complete: no variable or placeholder is in them."""
_REGISTERED = re.compile(r"""^@register_\w{1,60}\(\s{0,20}["']([\w.+-]{1,60})["']\s{0,20},?\s{0,20}\)""", re.MULTILINE)
"""Decorators that add a value: `@register_quantization_config("name")`."""
_FEW = 12
"""Upper bound of the values that a message lists."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The arguments that a flag takes: one of `values`, or JSON with `keys`; None if it does not take that kind.

    `is_exact`: whether values are compared as they are; `is_number`: whether it takes a whole number; `is_open`: whether plug-ins may
    register further values (`Literal[...] | str`).
    """

    values: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    is_exact: bool = False
    is_number: bool = False
    is_open: bool = False


def unknown(files: Files, given: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Unknown]:
    """Find the (flag, value) pairs whose value, or an outermost key of whose JSON, the tree does not know."""
    known = declared(files)
    results = {(flag, value): _unknown(flag, value, known[flag]) for flag, value in given if flag in known}
    return MappingProxyType({pair: unknown for pair, unknown in results.items() if unknown is not None})


def _unknown(flag: str, value: str, known: Choices) -> Unknown | None:
    if known.is_number and _TEXT.fullmatch(value) and not _NUMBER.fullmatch(value):
        return Unknown(flag, f"{flag} does not take {value}: it takes a whole number", None)
    if known.is_open and known.values is not None:
        return _unregistered(flag, value, known.values)
    if known.values is not None and value not in known.values and (known.is_exact or not _same(value, known.values)):
        return Unknown(flag, f"{flag} does not take {value}: {_near(value, known.values)}", nearest(value, known.values))
    if known.keys is not None and (odd := sorted({*_keys(value)} - known.keys)):
        return Unknown(
            flag, f"the JSON of {flag} has no key {odd[0]}: {_near(odd[0], known.keys)}", nearest(odd[0], known.keys)
        )
    return None


def _unregistered(flag: str, value: str, known: frozenset[str]) -> Unknown | None:
    """Judge a value to which plug-ins may add: one that is nearly a known one is a slip, any other may be a plug-in's."""
    if value.lower() in known or not _TEXT.fullmatch(value):
        return None
    near = slip(value, sorted(known))
    if near is not None:
        return Unknown(flag, f"{flag} has no {value}: did you mean {near}?", near)
    problem = f"{flag} {value} is none of vLLM's own: it works only if an installed plug-in registers that name"
    return Unknown(flag, problem, None, is_certain=False)


def _same(value: str, known: frozenset[str]) -> bool:
    # vLLM accepts some values in upper or lower case, and with dashes: in doubt, a value counts as known.
    return _plain(value) in map(_plain, known)


def _plain(value: str) -> str:
    return value.lower().replace("-", "_")


def _near(name: str, known: frozenset[str]) -> str:
    near = nearest(name, known)
    if near:
        return f"the nearest is {near}"
    if len(known) <= _FEW:
        return f"it takes {', '.join(sorted(known))}"
    begin = sorted(each for each in known if name and _plain(each).startswith(_plain(name)))[:_FEW]
    return f"names that begin with it are {', '.join(begin)}" if begin else "nothing there is named like it"


def _keys(value: str) -> tuple[str, ...]:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError):
        return ()
    return tuple(data) if isinstance(data, dict) else ()


def declared(files: Files) -> Mapping[str, Choices]:
    """Return the choices of `vllm serve`'s flags, by flag."""
    if not files.is_file(ENGINE):
        return MappingProxyType({})
    source = _Source(files)
    found = {flag: source.field(of, name) for flag, (of, name) in _flags(source.tree(ENGINE)).items()}
    found |= {flag: Choices(keys, is_exact=True) for flag, path in _PARSERS.items() if (keys := source.keys(path)) is not None}
    return MappingProxyType({flag: choices for flag, choices in found.items() if choices != Choices()})


def _flags(engine: ast.Module | None) -> dict[str, tuple[str, str]]:
    """Return the flags that are made from a field of a configuration class, with the class's and the field's name."""
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
                expanded = [keyword.value for keyword in keywords if keyword.arg is None]
                table, field = _field(expanded[0], fields) if len(expanded) == 1 else ("", "")
                if table in classes and not any(keyword.arg in ("choices", "type", "action") for keyword in keywords):
                    found[flag] = classes[table], field
    return found


def _field(expanded: ast.expr, fields: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    match expanded:
        case ast.Subscript(ast.Name(table), ast.Constant(str(field))):
            return table, field
        case ast.Name(name):
            return fields.get(name, ("", ""))
        case ast.Dict([None, *names], [inner, *_]) if all(
            isinstance(name, ast.Constant) and name.value in ("default", "help") for name in names
        ):
            return _field(inner, fields)  # {**table["field"], "default": None}
    return "", ""


class _Source:
    """The Python files of a tree; each is parsed once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._modules = Modules(files)
        self._trees: dict[str, ast.Module | None] = {}

    def tree(self, path: str) -> ast.Module | None:
        """Parse a file; None if it is not valid Python."""
        if path not in self._trees:
            try:
                self._trees[path] = parse(self._files.read(path) or b"")
            except SyntaxError:
                self._trees[path] = None
        return self._trees[path]

    def keys(self, path: str) -> frozenset[str] | None:
        """Return the keys of the table of parsers in a file; None if there is not exactly one."""
        tables = [
            node.value
            for node in self._body(path)
            if isinstance(node, ast.Assign | ast.AnnAssign)
            and isinstance(node.value, ast.Dict)
            and _named(node).endswith(_TABLE)
        ]
        return _strings(tables[0].keys) if len(tables) == 1 else None

    def field(self, of: str, name: str) -> Choices:
        """Return the choices of a field of a configuration class that the engine imports."""
        found = self._class(ENGINE, of)
        if found is None:
            return Choices()
        path, definition = found
        annotations = [each.annotation for each in _annotated(definition) if _named(each) == name]
        return self._annotation(path, annotations[0]) if len(annotations) == 1 else Choices()

    def _annotation(self, path: str, annotation: ast.expr) -> Choices:
        parts = [part for part in _union(annotation) if not (isinstance(part, ast.Constant) and part.value is None)]
        if parts and all(isinstance(part, ast.Name) and part.id == "int" for part in parts):
            return Choices(is_number=True)
        if any(isinstance(part, ast.Name) and part.id == "str" for part in parts):
            return self._open(path, [part for part in parts if not (isinstance(part, ast.Name) and part.id == "str")])
        # A class that is written with its module, as torch.dtype, cannot be given in a command: vLLM offers the literal only.
        values = [self._values(path, part) for part in parts if not isinstance(part, ast.Attribute)]
        if values and all(part is not None for part in values):
            return Choices(functools.reduce(frozenset.union, (part for part in values if part is not None)))
        keys = [self._names(path, part.id) for part in parts if isinstance(part, ast.Name)]
        known = [names for names in keys if names]
        return Choices(keys=known[0]) if len(known) == 1 else Choices()

    def _open(self, path: str, parts: Sequence[ast.expr]) -> Choices:
        """Return the values of a literal beside which any text is allowed, with those that are registered in the literal's package."""
        if len(parts) != 1:
            return Choices()
        values = self._values(path, parts[0])
        home = path
        if values is None and isinstance(parts[0], ast.Name):
            home = self._import(path, parts[0].id) or path
            values = self._values(home, parts[0])
        return Choices(values | self._registered(home), is_open=True) if values is not None else Choices()

    def _import(self, path: str, name: str) -> str | None:
        """Return the file from which a file imports a name, also where only a type checker imports it."""
        for node in ast.walk(self.tree(path) or ast.Module([], [])):
            if isinstance(node, ast.ImportFrom) and node.module and any(_is_plainly(each, name) for each in node.names):
                return self._modules.file(node.module.replace(".", "/")) if not node.level else None
        return None

    def _registered(self, path: str) -> frozenset[str]:
        """Return the names that decorators register in the modules beside a file."""
        folder = path.rpartition("/")[0]
        files = (name for name in self._files.names(folder) if name.endswith(".py"))
        return frozenset(name for file in files for name in _REGISTERED.findall(self._files.text(f"{folder}/{file}")))

    def _values(self, path: str, part: ast.expr) -> frozenset[str] | None:
        """Return the values of a part of a union: a literal, an alias of one, or an enumeration; None for anything else."""
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
        """Return the fields of a class; None if it has base classes."""
        found = self._class(path, name)
        if found is None or found[1].bases:
            return None
        return frozenset(_named(each) for each in _annotated(found[1]))

    def _class(self, path: str, name: str) -> tuple[str, ast.ClassDef] | None:
        """Return a class that a file defines or imports, and the file that defines it."""
        resolved = self._modules.resolve(path.removesuffix(".py").removesuffix("/__init__"), name)
        if resolved is None or resolved[1] is None:
            return None
        file = self._modules.file(resolved[0])
        own = [each for each in self._body(file or "") if isinstance(each, ast.ClassDef) and each.name == resolved[1].name]
        return (file, own[0]) if file is not None and len(own) == 1 else None

    def _body(self, path: str) -> list[ast.stmt]:
        tree = self.tree(path)
        return tree.body if tree is not None else []


def _is_plainly(imported: ast.alias, name: str) -> bool:
    return imported.name == name and imported.asname is None


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
    """Return the values of string constants; None if a node is anything else."""
    values = [node.value if isinstance(node, ast.Constant) else None for node in nodes]
    return frozenset(str(value) for value in values) if all(isinstance(value, str) for value in values) else None


def _members(definition: ast.ClassDef) -> frozenset[str] | None:
    if not any(isinstance(base, ast.Name) and base.id in _ENUMERATIONS for base in definition.bases):
        return None
    return frozenset({_AUTO, *(_named(each) for each in definition.body if isinstance(each, ast.Assign))})
