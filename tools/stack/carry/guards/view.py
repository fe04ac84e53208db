# SPDX-License-Identifier: Apache-2.0
"""One upstream tree as a guard sees it: its files, its Python definitions, and which paths were read."""

import ast
from dataclasses import dataclass, field

from stack.carry.drift.modules import Imported, Modules
from stack.carry.drift.outline import Known
from stack.carry.drift.tree import Files
from stack.carry.guards import code
from stack.carry.guards.code import Found, Parsed
from stack.model.ids import TreeId
from stack.store.objects import FOLDER, Entry, Objects

_ROOTS = ("", "src", "python")
_DEPTH = 8
"""Upper bound of the base classes that are followed."""


@dataclass(slots=True)
class Cache:
    """Parsed files that the judgements of many trees share."""

    parsed: Parsed = field(default_factory=Parsed)
    known: Known = field(default_factory=Known)


class _WatchedFiles(Files):
    """The files of a tree; it records the paths at which somebody looked for a file."""

    def __init__(self, objects: Objects, tree: TreeId) -> None:
        super().__init__(objects, tree)
        self.looked: set[str] = set()

    def entry(self, path: str) -> Entry | None:
        found = super().entry(path)
        if found is None or found.mode != FOLDER:
            self.looked.add(path)
        return found


@dataclass(frozen=True, slots=True)
class Definition:
    """The file and the statements that bind a name."""

    path: str
    found: tuple[Found, ...]

    @property
    def line(self) -> int:
        """Return the line of the first statement."""
        return code.line_of(self.found)


class View:
    """One tree, for one guard: `looked` has the paths on which its judgement depends."""

    def __init__(self, objects: Objects, tree: TreeId, cache: Cache) -> None:
        self.objects = objects
        self.tree = tree
        self.files = _WatchedFiles(objects, tree)
        self._cache = cache
        self._modules = Modules(self.files, cache.known, hints=False)

    @property
    def looked(self) -> frozenset[str]:
        """Return the paths that were read, or looked for in vain."""
        return frozenset(path for path in self.files.looked if path)

    def blob(self, path: str) -> str | None:
        """Return the blob id of a file; None if the path is not a file."""
        return entry.id if (entry := self.files.entry(path)) is not None and self.files.is_file(path) else None

    def parsed(self, path: str) -> ast.Module | None:
        """Return a file's syntax tree; None if there is no such file, or it is not valid Python."""
        blob = self.blob(path)
        return None if blob is None else self._cache.parsed.get(blob, self.files.read(path) or b"")

    def members(self, path: str, qualified: str) -> Definition | None:
        """Return what binds a name with dots in a file; None if nothing does."""
        tree = self.parsed(path)
        found = code.members(tree, qualified) if tree is not None else ()
        return Definition(path, found) if found else None

    def module(self, dotted: str) -> str | None:
        """Return the place of a module (`vllm/utils`), which may be below `src`; None if there is none."""
        place = dotted.replace(".", "/")
        places = (f"{root}/{place}" if root else place for root in _ROOTS)
        return next((each for each in places if self._modules.file(each) is not None), None)

    def module_file(self, dotted: str) -> str | None:
        """Return the file of a module; None if there is none."""
        place = self.module(dotted)
        return None if place is None else self._modules.file(place)

    def attribute(self, dotted: str, qualified: str) -> Definition | None:
        """Return what an attribute of a module is, also if the module imports it or a class inherits it."""
        place = self.module(dotted)
        if place is None:
            return None
        name, _, rest = qualified.partition(".")
        found = self._bound(place, name)
        return self._inside(found, rest, _DEPTH) if found is not None and rest else found

    def _bound(self, place: str, name: str) -> Definition | None:
        path = self._modules.file(place)
        own = self.members(path, name) if path is not None else None
        if own is not None:
            return own
        resolved = self._modules.resolve(place, name)
        if resolved is None or resolved[1] is None or resolved[0] == place:
            return None
        where = self._modules.file(resolved[0])
        return self.members(where, resolved[1].name) if where is not None else None

    def _inside(self, holder: Definition, rest: str, depth: int) -> Definition | None:
        """Return what binds a name in a class or in one of its base classes in this tree."""
        name, _, further = rest.partition(".")
        for each in holder.found:
            if not isinstance(each, ast.ClassDef):
                continue
            own = code.definitions(each, name)
            if own:
                found = Definition(holder.path, own)
                return self._inside(found, further, depth) if further else found
            for base in each.bases if depth else ():
                above = self._base(holder.path, base)
                inherited = self._inside(above, rest, depth - 1) if above is not None else None
                if inherited is not None:
                    return inherited
        return None

    def _base(self, path: str, base: ast.expr) -> Definition | None:
        if isinstance(base, ast.Subscript):  # Generic classes
            base = base.value
        if not isinstance(base, ast.Name):
            return None
        own = self.members(path, base.id)
        if own is not None:
            return own
        module = self._modules.module(path)
        bound = module.bound.get(base.id) if module is not None else None
        if not bound or not isinstance(bound[0], Imported):
            return None
        imported = bound[0]
        return self._bound(imported.place, imported.name) if imported.place is not None and imported.name is not None else None
