# SPDX-License-Identifier: Apache-2.0
"""Names that a change adds and names that a change uses: what one adds, the tree has nowhere, and another uses, ties them together.

Imports, attributes, signatures, includes and environment variables are the drift check's: it knows what a name means. This looks
for the rest, which only spelling tells: flags, keys and choices in texts, keyword arguments, macros, files by their names.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stack.carry.drift import added_between
from stack.carry.drift.tree import Files
from stack.carry.drift.variables import bring
from stack.model.ids import TreeId
from stack.store.objects import FOLDER, SUBMODULE, Objects

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT = re.compile(r"(?:--)?[A-Za-z_][A-Za-z0-9_]*(?:[-.][A-Za-z0-9_]+)*")
"""A text that is a name: a key, a choice, a flag, a file."""
_C_DEFINES = re.compile(
    r"^\s*#\s*define\s+(\w+)|\b(?:struct|class|enum|namespace|concept)\s+(\w+)|\busing\s+(\w+)\s*="
    r"|^(?!\s*(?:return|else|if|for|while|switch)\b)[\w:<>,&*\s]+?[\s&*](\w+)\s*\((?:[^;]*$|[^;{}]*\)[\w\s]*\{)"
)
_C_FILES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl", ".jinja")
_PROSE = (".md", ".rst", ".txt")
_SHORT = 3
"""Names of so few letters say nothing."""
_LARGEST = 2_000_000
"""Bytes of a file that is read."""
_HEAD = 8000
"""Bytes of a file of which one that is 0 makes it binary, as for git."""


@dataclass(frozen=True, slots=True)
class Names:
    """What a change's added lines define, and what they use; a name in a text may be both, a choice that is added or one that is taken."""

    added: frozenset[str]
    used: frozenset[str]


def names(objects: Objects, before: TreeId, after: TreeId) -> Names:
    """The names of a change.

    Raises:
        StackError: the repository cannot be read.

    """
    files = Files(objects, after)
    added = {path.rpartition("/")[2] for path, old, _ in objects.difference(before, after) if old is None}
    used: set[str] = set()
    for path, lines in added_between(objects, before, after).items():
        data = files.read(path)
        if data is not None and len(data) < _LARGEST:
            found = _of_file(path, data.decode("utf-8", "replace"), lines)
            added |= found.added
            used |= found.used
    return Names(_telling(added), _telling(used))


def absent_from(objects: Objects, tree: TreeId, wanted: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Those of some names that none of some files of a tree has.

    Raises:
        StackError: a file cannot be read.

    """
    files = Files(objects, tree)
    left = {*wanted}
    for path in paths if left else ():
        text = files.text(path)
        left -= {*_TEXT.findall(text), *_WORD.findall(text)}
    return frozenset(left)


def absent(objects: Objects, tree: TreeId, wanted: frozenset[str]) -> frozenset[str]:
    """Those of some names that a tree has nowhere but in prose.

    Raises:
        StackError: the tree cannot be read.

    """
    left = {name.encode(): re.compile(rb"(?<!\w)%b(?!\w)" % re.escape(name.encode())) for name in sorted(wanted)}
    files = Files(objects, tree)
    if left:
        bring(files, ["*", *(f":(exclude)*{suffix}" for suffix in _PROSE)])
    # Of what a patch uses most is in the first files already, where `git grep` goes on to look for all of it in all of them.
    for data in _sources(files) if left else ():
        for name in [name for name, whole in left.items() if name in data and whole.search(data)]:
            del left[name]
        if not left:
            break
    return frozenset(name.decode() for name in left)


def _sources(files: Files) -> Iterator[bytes]:
    """The contents of all files that are neither prose nor binary."""
    paths = [path for path in files.walk() if not path.endswith(_PROSE)]
    entries = (files.entry(path) for path in paths)
    files.objects.request(entry.id for entry in entries if entry is not None and entry.mode not in (FOLDER, SUBMODULE))
    for path in paths:
        data = files.read(path) or b""
        if b"\0" not in data[:_HEAD]:
            yield data


def _telling(found: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in found if len(name) > _SHORT and not name.startswith("__"))


def _of_file(path: str, text: str, lines: frozenset[int]) -> Names:
    if path.endswith((".py", ".pyi")):
        try:
            return _of_python(ast.parse(text), lines)
        except (SyntaxError, ValueError, RecursionError):
            pass  # the drift check tells what is wrong with it
    numbered = dict(enumerate(text.split("\n"), 1))
    said = [numbered.get(line, "") for line in lines]
    added = {name for line in said for found in _C_DEFINES.findall(line) for name in found} if path.endswith(_C_FILES) else ()
    return Names(frozenset(added), frozenset(word for line in said for word in (*_WORD.findall(line), *_TEXT.findall(line))))


def _of_python(module: ast.Module, lines: frozenset[int]) -> Names:
    nodes = [node for node in ast.walk(module) if getattr(node, "lineno", None) in lines]
    defined = {*_defined(nodes)}
    texts = {*_texts(nodes)}
    flags = {text for text in texts if text.startswith("--")}
    return Names(frozenset({*defined, *flags, *_standing(module, lines)}), frozenset({*_used(nodes)} - defined | texts))


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name


def _standing(scope: ast.Module | ast.ClassDef, lines: frozenset[int]) -> Iterator[str]:
    """The names in texts that a module or class itself assigns: choices, keys, entries of tables."""
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef):
            yield from _standing(statement, lines)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                match node:
                    case ast.Constant(value=str(said), lineno=line) if line in lines and _TEXT.fullmatch(said):
                        yield said


def _used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case (
                ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.keyword(arg=str(name))
            ):
                yield name


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(said)):
                yield from _TEXT.findall(said)
