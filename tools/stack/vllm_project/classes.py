# SPDX-License-Identifier: Apache-2.0
"""Read the classes of vLLM's backends: where they stand, what they inherit, and what their methods return for a GPU."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from stack.carry.drift.outline import parse
from stack.projects import Use
from stack.vllm_project import evaluation
from stack.vllm_project.evaluation import UNKNOWN, Scope

REGISTRY = "vllm/v1/attention/backends/registry.py"
_ENUM = "AttentionBackendEnum"
_OTHERS = ("ROCM_", "XPU_", "CPU_")
_DEPTH = 6
_CALLS = 5_000
"""Most calls that are evaluated for one command; all backends of vLLM 0.32 take about a hundred."""


class Readable(Protocol):
    """The files of a tree."""

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if there is none."""

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""


class Source:
    """The Python files of a tree: classes with their bases, and functions; each file is parsed once."""

    def __init__(self, files: Readable) -> None:
        self._files = files
        self._trees: dict[str, ast.Module] = {}
        self._left = _CALLS

    def tree(self, path: str) -> ast.Module:
        """Parse a file; one that is missing or not valid is empty."""
        if path not in self._trees:
            try:
                self._trees[path] = parse(self._files.read(path) or b"")
            except SyntaxError:
                self._trees[path] = ast.Module([], [])
        return self._trees[path]

    def backends(self) -> Mapping[str, str]:
        """Return the attention backends of NVIDIA's GPUs by their names, with the dotted paths of their classes."""
        return {name: path for name, path in self._registered().items() if path and not name.startswith(_OTHERS)}

    def elsewhere(self) -> Mapping[str, str]:
        """Return the attention backends that serve no language model on NVIDIA's GPUs, each with the reason."""
        return {
            name: "is for another kind of processor" if path else "has no implementation for language models"
            for name, path in self._registered().items()
            if not path or name.startswith(_OTHERS)
        }

    def _registered(self) -> Mapping[str, str]:
        found = {}
        for node in self._body(REGISTRY, _ENUM):
            match node:
                case ast.Assign([ast.Name(name)], ast.Constant(str(path))) if "." in path or not path:
                    found[name] = path
        return found

    def table(self, path: str) -> Mapping[str, tuple[str, ...]]:
        """Return the names of MoE backends that a file maps to members of its enumeration; a name may stand for several."""
        for node in self.tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("map_"):
                for each in ast.walk(node):
                    if isinstance(each, ast.Dict) and each.keys and all(isinstance(key, ast.Constant) for key in each.keys):
                        return {
                            str(key.value): tuple(part.attr for part in ast.walk(value) if isinstance(part, ast.Attribute))
                            for key, value in zip(each.keys, each.values, strict=True)
                            if isinstance(key, ast.Constant)
                        }
        return {}

    def kernels(self, path: str, member: str) -> list[str]:
        """Return the dotted paths of the classes that `backend_to_kernel_cls` returns for a member; empty if it does not say."""
        for node in self.tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name == "backend_to_kernel_cls":
                for branch in ast.walk(node):
                    if isinstance(branch, ast.If) and _is_about(branch.test, member):
                        imported = _imports(branch.body)
                        return [
                            imported[name.id]
                            for each in branch.body
                            if isinstance(each, ast.Return) and isinstance(each.value, ast.List)
                            for name in each.value.elts
                            if isinstance(name, ast.Name) and name.id in imported
                        ]
        return []

    def asked(self, dotted: str, name: str, arguments: Sequence[Any], use: Use, depth: int = _DEPTH) -> Any:
        """Return what a method of a class returns; `UNKNOWN` if that cannot be read."""
        found = self._found(dotted, name, depth)
        return UNKNOWN if found is None else self._result(found[0], found[1], dotted, arguments, use, depth)

    def _result(self, node: ast.AST, path: str, dotted: str | None, arguments: Sequence[Any], use: Use, depth: int) -> Any:
        self._left -= 1
        if not isinstance(node, ast.FunctionDef) or depth <= 0 or self._left < 0 or node.args.kwonlyargs or node.args.vararg:
            return UNKNOWN
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args) if each.arg not in ("cls", "self")]
        scope = Scope(use.pair, dict(zip(names, arguments, strict=False)))
        owner = self._owner(node, path)
        scope = replace(
            scope,
            functions=lambda name, given: self._function(path, name, given, use, depth - 1),
            attributes=lambda name: self._attribute(dotted, name, use, depth - 1) if dotted else UNKNOWN,
            methods=lambda name, given: self.asked(dotted, name, given, use, depth - 1) if dotted else UNKNOWN,
            inherited=lambda name, given: self._inherited(owner, path, name, dotted, given, use, depth - 1),
        )
        return evaluation.result(node, scope)

    def _inherited(
        self, owner: str | None, path: str, name: str, dotted: str | None, given: Sequence[Any], use: Use, depth: int
    ) -> Any:
        """Call a method of a base class of `owner` for the class `dotted`."""
        for base in self._bases(path, owner) if owner else ():
            if (found := self._found(base, name, depth)) is not None:
                return self._result(found[0], found[1], dotted, given, use, depth)
        return UNKNOWN

    def _function(self, path: str, name: str, given: Sequence[Any], use: Use, depth: int) -> Any:
        if name == "is_quantized_kv_cache" and len(given) == 1 and isinstance(given[0], str):
            return given[0].startswith(("fp8", "nvfp4", "int8", "int4"))
        for node in self.tree(path).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return self._result(node, path, None, given, use, depth)
        dotted = _imports(self.tree(path).body).get(name)
        if dotted is None or depth <= 0:
            return UNKNOWN
        return self._function(self._file(dotted.rpartition(".")[0]), dotted.rpartition(".")[2], given, use, depth - 1)

    def _attribute(self, dotted: str, name: str, use: Use, depth: int) -> Any:
        found = self._found(dotted, name, depth)
        if found is None or not isinstance(found[0], ast.expr):
            return UNKNOWN
        return evaluation.value_of(found[0], Scope(use.pair))

    def _found(self, dotted: str, name: str, depth: int) -> tuple[ast.AST, str] | None:
        """Return the method or the value that a class has under a name, its own or inherited, and the file."""
        if depth <= 0:
            return None
        module, _, own = dotted.rpartition(".")
        path = self._file(module)
        for node in self._body(path, own):
            match node:
                case ast.FunctionDef(name=called) if called == name:
                    return node, path
                case ast.AnnAssign(ast.Name(called), _, value) if called == name and value is not None:
                    return value, path
                case ast.Assign([ast.Name(called)], value) if called == name:
                    return value, path
        bases = (self._found(base, name, depth - 1) for base in self._bases(path, own))
        return next((found for found in bases if found is not None), None)

    def _bases(self, path: str, name: str) -> list[str]:
        made = self._class(path, name)
        here = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        imported = _imports(self.tree(path).body)
        found = []
        for base in made.bases if made else ():
            plain = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(plain, ast.Name):
                found.append(imported.get(plain.id, f"{here}.{plain.id}"))
        return found

    def _owner(self, node: ast.FunctionDef, path: str) -> str | None:
        classes = (each for each in self.tree(path).body if isinstance(each, ast.ClassDef))
        return next((each.name for each in classes if node in each.body), None)

    def _body(self, path: str, name: str) -> list[ast.stmt]:
        made = self._class(path, name)
        return made.body if made is not None else []

    def _class(self, path: str, name: str) -> ast.ClassDef | None:
        return next((each for each in self.tree(path).body if isinstance(each, ast.ClassDef) and each.name == name), None)

    def _file(self, dotted: str) -> str:
        place = dotted.replace(".", "/")
        return f"{place}.py" if self._files.is_file(f"{place}.py") else f"{place}/__init__.py"


def _is_about(test: ast.expr, member: str) -> bool:
    """Tell whether a condition compares with this member of an enumeration, alone or among others."""
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Attribute) and each.attr == member for part in test.comparators for each in ast.walk(part)
    )


def _imports(body: Sequence[ast.stmt]) -> dict[str, str]:
    """Return the names that statements import from modules, with their dotted paths."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
