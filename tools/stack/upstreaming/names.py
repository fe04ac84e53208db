# SPDX-License-Identifier: Apache-2.0
"""Find names that a change adds or uses. Two changes depend on each other if one adds a new name that the other uses.

The drift check handles imports, attributes, signatures, includes and environment variables by their meaning. This module
handles the rest by spelling alone: flags, keys and choices in string literals, keyword arguments, macros, and file names.
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
"""Matches a string literal that is a name: a key, a choice, a flag, or a file."""
_C_DEFINES = re.compile(
    r"^\s*#\s*define\s+(\w+)|\b(?:struct|class|enum|namespace|concept)\s+(\w+)|\busing\s+(\w+)\s*="
    r"|^(?!\s*(?:return|else|if|for|while|switch)\b)[\w:<>,&*\s]+?[\s&*](\w+)\s*\((?:[^;]*$|[^;{}]*\)[\w\s]*\{)"
)
_C_FILES = (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".inl", ".jinja")
_PROSE = (".md", ".rst", ".txt")
_SHORT = 3
"""Names of at most this many letters are too common to count."""
_LARGEST = 2_000_000
"""Maximal bytes of a file that is read."""
_HEAD = 8000
"""A file is binary if a zero byte is among this many first bytes, as in git."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a change's added lines define, and those that they use.

    A name in a string literal may count as both: a choice may be added or taken there.
    """

    added: frozenset[str]
    used: frozenset[str]


def names(objects: Objects, before: TreeId, after: TreeId) -> Names:
    """Return the names that a change adds and uses.

    Raises:
        StackError: the repository cannot be read.

    """
    files = Files(objects, after)
    added = {path.rpartition("/")[2] for path, old, _ in objects.difference(before, after) if old is None}
    used: set[str] = set()
    for path, lines in added_between(objects, before, after).items():
        data = files.read(path)
        if data is not None and len(data) < _LARGEST:
            names_of_file = _of_file(path, data.decode("utf-8", "replace"), lines)
            added |= names_of_file.added
            used |= names_of_file.used
    return Names(_telling(added), _telling(used))


def absent_from(objects: Objects, tree: TreeId, wanted: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Return those of the wanted names that occur in none of some files of a tree.

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
    """Return those of the wanted names that occur nowhere in a tree except in prose.

    Raises:
        StackError: the tree cannot be read.

    """
    left = {name.encode(): re.compile(rb"(?<!\w)%b(?!\w)" % re.escape(name.encode())) for name in sorted(wanted)}
    files = Files(objects, tree)
    if left:
        bring(files, ["*", *(f":(exclude)*{suffix}" for suffix in _PROSE)])
    # The first files contain most of the wanted names already; `git grep` would search all files for all names.
    for data in _sources(files) if left else ():
        for name in [name for name, whole in left.items() if name in data and whole.search(data)]:
            del left[name]
        if not left:
            break
    return frozenset(name.decode() for name in left)


def _sources(files: Files) -> Iterator[bytes]:
    """Yield the contents of all files that are neither prose nor binary."""
    paths = [path for path in files.walk() if not path.endswith(_PROSE)]
    entries = (files.entry(path) for path in paths)
    files.objects.request(entry.id for entry in entries if entry is not None and entry.mode not in (FOLDER, SUBMODULE))
    for path in paths:
        data = files.read(path) or b""
        if b"\0" not in data[:_HEAD]:
            yield data


def _telling(candidates: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in candidates if len(name) > _SHORT and not name.startswith("__"))


def _of_file(path: str, text: str, lines: frozenset[int]) -> Names:
    if path.endswith((".py", ".pyi")):
        try:
            return _of_python(ast.parse(text), lines)
        except (SyntaxError, ValueError, RecursionError):
            pass  # the drift check reports syntax errors
    numbered = dict(enumerate(text.split("\n"), 1))
    texts = [numbered.get(line, "") for line in lines]
    added = {name for line in texts for match in _C_DEFINES.findall(line) for name in match} if path.endswith(_C_FILES) else ()
    return Names(frozenset(added), frozenset(word for line in texts for word in (*_WORD.findall(line), *_TEXT.findall(line))))


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
    """Yield the names in string literals that a module or class assigns at its top level: choices, keys, entries of tables."""
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef):
            yield from _standing(statement, lines)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            for node in ast.walk(statement):
                match node:
                    case ast.Constant(value=str(text), lineno=line) if line in lines and _TEXT.fullmatch(text):
                        yield text


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
            case ast.Constant(value=str(text)):
                yield from _TEXT.findall(text)
