# SPDX-License-Identifier: Apache-2.0
"""Recognise from the text alone that added lines cannot have drifted, so that most files need not be parsed.

Lines can rely only on names that their file imports or defines. If all of these are the same in the new tree as in the old one,
nothing can have drifted. If this is not certain, the answer is no, and the file is checked.
"""

import ast
import re
from collections.abc import Iterator, Set

from stack.carry.drift import owners
from stack.carry.drift.chunks import chunks, imports, texts
from stack.carry.drift.modules import Imported, Modules, headers
from stack.carry.drift.outline import LARGEST, bodiless
from stack.carry.drift.tree import Files

_DEPTH = 12
"""Upper bound of the packages and re-exports that are followed."""
_CHAIN = re.compile(rb"(?<![\w.])([A-Za-z_]\w*)((?:\s*\.\s*[A-Za-z_]\w*)*)")
_BINDING = re.compile(rb"[^=!<>]=[^=]|^\s*\w+\s*:|\b(?:for|as|import|def|class|global|case)\b")

_Chains = dict[str, set[tuple[str, ...]]]
"""For each name in a text: the attribute chains that follow it."""


class Unchanged:
    """Compares two trees with the same patches (`upstream`: the newer one without them) for lines that were added to both."""

    def __init__(self, now: Modules, before: Modules, upstream: Files) -> None:
        self._now = now
        self._before = before
        self._upstream = upstream
        self._known: dict[tuple[str, tuple[str, ...]], bool] = {}

    def holds(self, path: str, added: Set[int]) -> bool:
        """Return whether everything that added lines of a file (by their numbers) rely on is unchanged."""
        now, old = self._now.files.read(path), self._before.files.read(path)
        if now is None or old is None or len(now) > LARGEST:
            return False
        lines = now.split(b"\n")
        names = owners.pattern(owners.NAME)
        if any(names.search(lines[number - 1].decode("utf-8", "replace")) for number in added):
            return False
        text = self._around(path, now, old, added)
        if text is None:
            return False
        chains = _chains(text)
        try:
            return self._imports(path, now, old, chains) and (now == old or self._own(path, now, old, chains))
        except SyntaxError:
            return False

    def _around(self, path: str, now: bytes, old: bytes, added: Set[int]) -> bytes | None:
        """Return the statements and functions with added lines; None if they are new, or other text is neither old nor upstream's."""
        before = texts(old)
        known = before if now == old else before | texts(self._upstream.read(path) or b"")
        around: list[bytes] = []
        for chunk in chunks(now):
            wanted = chunk.added(added)
            if chunk.text not in (before if wanted else known):
                return None
            if wanted:
                around += bodiless(chunk.lines, wanted) or chunk.lines
        return b"\n".join(around)

    def _imports(self, path: str, now: bytes, old: bytes, chains: _Chains) -> bool:
        bound = _bound(self._now, path, now)
        was = _bound(self._before, path, old)
        used = [name for name in bound.keys() | was.keys() if name in chains or name == "*"]
        return all(
            bound.get(name) == was.get(name) and all(self._import(imported, chains.get(name, {()})) for imported in bound[name])
            for name in used
        )

    def _import(self, imported: Imported, chains: Set[tuple[str, ...]]) -> bool:
        if imported.place is None:
            return True  # A third-party package.
        if imported.name == "*":
            return False
        name = () if imported.name is None else (imported.name,)
        return all(self._same(imported.place, (*name, *rest)) for rest in chains)

    def _own(self, path: str, now: bytes, old: bytes, chains: _Chains) -> bool:
        """Return whether a changed file still binds the used names, with the same parameters."""
        for name, rests in chains.items():
            if (self._now.is_defined(path, name) or self._before.is_defined(path, name)) and not all(
                self._in_file(path, (name, *rest)) for rest in rests
            ):
                return False
        left = set(now.split(b"\n"))
        vanished = (line for line in old.split(b"\n") if line not in left and _BINDING.search(line))
        unbound = {word.decode("utf-8", "replace") for line in vanished for word, _ in _CHAIN.findall(line)}
        return all(self._now.is_defined(path, name) for name in unbound & chains.keys())

    def _same(self, place: str, names: tuple[str, ...], depth: int = _DEPTH) -> bool:
        """Return whether a chain of names in the module at a place has the same meaning as before."""
        key = place, names
        if key not in self._known:
            self._known[key] = False  # Ends the recursion if modules import each other.
            self._known[key] = depth > 0 and self._is_same(place, names, depth)
        return self._known[key]

    def _is_same(self, place: str, names: tuple[str, ...], depth: int) -> bool:
        path = self._now.file(place)
        if path != self._before.file(place):
            return False
        inner = f"{place}/{names[0]}" if names else place
        if path is None:
            folders = self._now.files.is_folder(place) and self._before.files.is_folder(place)
            return folders and (not names or self._same(inner, names[1:], depth - 1))
        if not names or _is_given(names[0]) or self._in_file(path, names):
            return True
        if self._now.is_defined(path, names[0]) or self._before.is_defined(path, names[0]):
            return False
        further, was = self._now.reexport(path, names[0]), self._before.reexport(path, names[0])
        if further != place and (further is not None or was is not None):
            return further is not None and further == was and self._same(further, names, depth - 1)
        return self._now.file(inner) is not None and self._same(inner, names[1:], depth - 1)

    def _in_file(self, path: str, names: tuple[str, ...]) -> bool:
        """Return whether both files at a path define a name at their top level, with the same parameters."""
        if not (self._now.is_defined(path, names[0]) and self._before.is_defined(path, names[0])):
            return False
        now, old = self._now.files.read(path) or b"", self._before.files.read(path) or b""
        if now == old:
            return True
        is_class = self._now.defines_class(path, names[0])
        if is_class != self._before.defines_class(path, names[0]):
            return False
        method = names[1] if len(names) > 1 else "__init__"
        called = method if is_class else names[0]
        return headers(now, called) == headers(old, called)


def _is_given(name: str) -> bool:
    """Return whether every module may have that name (`__name__` and the like)."""
    return name.startswith("__") and name.endswith("__")


def _chains(text: bytes) -> _Chains:
    chains: _Chains = {}
    for name, rest in set(_CHAIN.findall(text)):
        attributes = tuple(part.strip().decode("utf-8", "replace") for part in rest.split(b".")[1:])
        chains.setdefault(name.decode("ascii"), set()).add(attributes)
    return chains


def _bound(modules: Modules, path: str, data: bytes) -> dict[str, frozenset[Imported]]:
    """Return the names that the imports anywhere in a file bind."""
    bound: dict[str, set[Imported]] = {}
    for name, imported in _bindings(modules, path, data):
        bound.setdefault(name, set()).add(imported)
    return {name: frozenset(each) for name, each in bound.items()}


def _bindings(modules: Modules, path: str, data: bytes) -> Iterator[tuple[str, Imported]]:
    for statement in imports(data):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from modules.bindings(path, statement)
