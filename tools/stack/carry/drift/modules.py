# SPDX-License-Identifier: Apache-2.0
"""Python modules of a source tree: where they are and which names they have, without importing any.

A module's place is its path without suffix (`vllm/utils`). Whatever cannot be told for sure counts as there: a module that
makes names while it runs, one that its build makes, a star import of something that is not in the tree.
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stack.carry.drift.finding import nearest
from stack.carry.drift.outline import Defined, Definition, Known, Outline, outline
from stack.carry.drift.tree import ASIDE, Files
from stack.store import git

_ROOTS = ("", "src", "python")
_DEPTH = 12
"""Of re-exports that are followed."""
_TOP = re.compile(rb"^(?:(?:async )?def (\w+)\(|class (\w+)[(:]|(\w+)(?: = |: ))", re.MULTILINE)
_PARAMETERS = re.compile(rb"(\(.*?\)[^\n]*:)[ \t]*(?:#.*)?$", re.MULTILINE | re.DOTALL)
_DEFINITIONS = r"^(async +def|def|class) +[A-Za-z]"
_NOTHING = Defined(frozenset(), frozenset())
_NAMED = re.compile(r"^(?:async +)?(?:def|class) +(\w+)")


@dataclass(frozen=True, slots=True)
class Imported:
    """A name that an import binds: to the module `place` (`name` None), or to a name in it. None: not of this tree."""

    place: str | None
    name: str | None


@dataclass(slots=True)
class Module:
    """What a module binds at its top level; None stands for anything but an import or a definition."""

    bound: dict[str, list[Imported | Definition | None]] = field(default_factory=dict)
    stars: list[str | None] = field(default_factory=list)
    dynamic: bool = False


class Modules:
    """The modules of one tree. What is `known` may be shared between trees."""

    def __init__(self, files: Files, known: Known | None = None, *, hints: bool = True) -> None:
        self.files = files
        self._hints = hints
        self._known = known if known is not None else Known()
        self._modules: dict[str, Module | None] = {}
        self._resolved: dict[tuple[str, str, int], tuple[str, Definition | None] | None] = {}
        self._reexports: dict[tuple[str, str], str | None] = {}
        self._provides: dict[tuple[str, str], bool | None] = {}
        self._files: dict[str, str | None] = {}
        self._belongs: dict[tuple[str, str], str | None] = {}

    def file(self, place: str) -> str | None:
        """The file of the module at a place; None where there is none, or only a folder (a namespace package)."""
        if place not in self._files:
            paths = (f"{place}/__init__.py", f"{place}.py", f"{place}/__init__.pyi", f"{place}.pyi")
            self._files[place] = next(filter(self.files.is_file, paths), None)
        return self._files[place]

    def exists(self, place: str) -> bool:
        """Whether a module is there, or may be."""
        if self.file(place) or self.files.is_unknown(place) or self.files.is_folder(place):
            return True
        folder, _, name = place.rpartition("/")
        return any(
            found.startswith(f"{name}.") and found.endswith((".so", ".pyx", ".pyd")) for found in self.files.names(folder)
        )

    def belongs(self, top: str, importer: str) -> str | None:
        """The place of a top-level package or module if it is the tree's own, seen from the file that imports it."""
        key = top, importer.rpartition("/")[0]
        if key not in self._belongs:
            roots = dict.fromkeys((_root(self.files, importer), *_ROOTS))
            self._belongs[key] = next(filter(self.file, (f"{root}/{top}" if root else top for root in roots)), None)
        return self._belongs[key]

    def place(self, importer: str, level: int, dotted: str) -> str | None:
        """Where an import leads; None where that is not for this tree to say."""
        if not level:
            top, _, rest = dotted.partition(".")
            place = self.belongs(top, importer)
            return "/".join([place, *rest.split(".")]) if place and rest else place
        parts = importer.split("/")[:-1]
        if level - 1 > len(parts) or not parts:
            return None
        return "/".join([*parts[: len(parts) - level + 1], *(dotted.split(".") if dotted else [])]) or None

    def missing(self, place: str, before: "Modules | None") -> bool:
        """Whether a module is surely not there. The tree before decides what the tree alone leaves in doubt."""
        if self.exists(place):
            return False
        above = place.rpartition("/")[0]
        if above and self._is_plain_module(above):
            return not self.provides(above, place.rpartition("/")[2])
        if self.files.may_be_made(place):
            was = before is not None and (before.file(place) is not None or before.files.declares(place))
            return was and not self.files.declares(place)
        return True

    def _is_plain_module(self, place: str) -> bool:
        """A module that is no package can still hold others: what it puts into `sys.modules`."""
        path = self.file(place)
        return path is not None and "/__init__." not in path and b"sys.modules" in (self.files.read(path) or b"")

    def lacks(self, place: str, name: str, before: "Modules | None") -> bool:
        """Whether an existing module surely has no such name."""
        if self.provides(place, name) is not False:
            return False
        inner = f"{place}/{name}"
        if self.files.may_be_made(inner):
            return before is not None and before.file(inner) is not None and not self.files.declares(inner)
        return True

    def provides(self, place: str, name: str, depth: int = _DEPTH) -> bool | None:
        """Whether the module at a place has a name: None where that cannot be told."""
        key = (place, name)
        if key not in self._provides:
            self._provides[key] = None  # modules that star-import each other
            self._provides[key] = self._has(place, name, depth)
        return self._provides[key]

    def _has(self, place: str, name: str, depth: int) -> bool | None:
        if (name.startswith("__") and name.endswith("__")) or self.exists(f"{place}/{name}"):
            return True
        path = self.file(place)
        if path is None:
            return None if self.files.is_unknown(place) or not self.files.is_folder(place) else False
        if self.is_defined(path, name):
            return True
        module = self.module(path) if depth else None
        return None if module is None else self._binds(module, name, depth)

    def _binds(self, module: Module, name: str, depth: int) -> bool | None:
        if name in module.bound:
            return True
        found = [None if star is None else self.provides(star, name, depth - 1) for star in module.stars]
        if True in found:
            return True
        return None if module.dynamic or None in found else False

    def resolve(self, place: str, name: str, depth: int = _DEPTH) -> tuple[str, Definition | None] | None:
        """What a name of a module stands for: (place, None) for a module, (place, definition) for what is defined there.

        None where it is anything else, or more than one thing.
        """
        key = place, name, depth
        if key not in self._resolved:
            self._resolved[key] = self._resolve(place, name, depth)
        return self._resolved[key]

    def _resolve(self, place: str, name: str, depth: int) -> tuple[str, Definition | None] | None:
        path = self.file(place)
        module = self.module(path) if path is not None else None
        if module is None or depth == 0:
            inner = f"{place}/{name}"
            return (inner, None) if self.file(inner) or self.files.is_folder(inner) else None
        bound = module.bound.get(name)
        if bound is None:
            inner = f"{place}/{name}"
            if self.file(inner) or self.files.is_folder(inner):
                return inner, None
            stars = [self.resolve(star, name, depth - 1) for star in module.stars if star is not None]
            known = [star for star in stars if star is not None]
            return known[0] if len(known) == 1 and not module.dynamic else None
        if len(bound) != 1 or bound[0] is None:
            return None
        return self.follow(bound[0], depth) if isinstance(bound[0], Imported) else (place, bound[0])

    def is_defined(self, path: str, name: str) -> bool:
        """Whether a line that is not indented defines or assigns a name: most names are found so, without parsing the file."""
        return name.encode("utf-8", "replace") in self._defined(path).names

    def defines_class(self, path: str, name: str) -> bool:
        """Whether a class of that name stands at the top level of a file."""
        return name.encode("utf-8", "replace") in self._defined(path).classes

    def _defined(self, path: str) -> Defined:
        entry = self.files.entry(path)
        if entry is None:
            return _NOTHING
        if entry.id not in self._known.defined:
            found = _TOP.findall(self.files.read(path) or b"")
            names = frozenset(one or other or third for one, other, third in found)
            self._known.defined[entry.id] = Defined(names, frozenset(other for _, other, _ in found if other))
        return self._known.defined[entry.id]

    def reexport(self, path: str, name: str) -> str | None:
        """Where a file has a name from, by its text alone: None unless it imports it once, under its own name, from this tree."""
        if (path, name) not in self._reexports:
            self._reexports[path, name] = self._reexport(path, name)
        return self._reexports[path, name]

    def _reexport(self, path: str, name: str) -> str | None:
        data = self.files.read(path) or b""
        word = re.escape(name.encode("utf-8", "replace"))
        found = re.findall(
            rb"^from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(?:\([^()]*?\b"
            + word
            + rb"\b([^,\n()]*)[^()]*\)|[^\n(]*?\b"
            + word
            + rb"\b([^,\n(]*))",
            data,
            re.MULTILINE,
        )
        if len(found) != 1 or self.is_defined(path, name):
            return None
        renamed = (found[0][2] + found[0][3]).partition(b"#")[0].split()
        if renamed not in ([], [b"as", word]):
            return None
        return self.place(path, len(found[0][0]), found[0][1].decode("utf-8", "replace"))

    def is_plain(self, imported: Imported) -> bool:
        """Whether an imported name is, at first sight, a function, a class or a value: no module."""
        if imported.place is None or imported.name is None:
            return imported.place is None
        path = self.file(imported.place)
        return path is not None and self.is_defined(path, imported.name)

    def follow(self, imported: Imported, depth: int = _DEPTH) -> tuple[str, Definition | None] | None:
        """What an imported name stands for."""
        if imported.place is None:
            return None
        if imported.name is None:
            return (imported.place, None) if self.exists(imported.place) else None
        return self.resolve(imported.place, imported.name, depth - 1)

    def module(self, path: str) -> Module | None:
        """What a file binds; None where it cannot be parsed."""
        if path not in self._modules:
            entry = self.files.entry(path)
            known = self._known.outlines
            if entry is not None and entry.id not in known:
                known[entry.id] = outline(self.files.read(path) or b"")
            found = known[entry.id] if entry is not None else None
            self._modules[path] = None if found is None else self._module(path, found)
        return self._modules[path]

    def _module(self, path: str, known: Outline) -> Module:
        module = Module(dynamic=known.dynamic)
        for name in known.names:
            module.bound.setdefault(name, []).append(None)
        for definition in known.definitions:
            module.bound.setdefault(definition.name, []).append(definition)
        for statement in known.imports:
            for bound, imported in self.bindings(path, statement):
                if bound == "*":
                    module.stars.append(imported.place)
                else:
                    module.bound.setdefault(bound, []).append(imported)
        return module

    def bindings(self, path: str, statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Imported]]:
        """The names that an import in a file binds, and to what."""
        for alias in statement.names:
            if isinstance(statement, ast.ImportFrom):
                place = self.place(path, statement.level, statement.module or "")
                yield alias.asname or alias.name, Imported(place, alias.name)
            elif alias.asname:
                yield alias.asname, Imported(self.place(path, 0, alias.name), None)
            else:
                top = alias.name.partition(".")[0]
                yield top, Imported(self.place(path, 0, top), None)

    def nearest(self, place: str) -> str | None:
        """The module that a missing one may have become."""
        if not self._hints:
            return None
        name = place.rpartition("/")[2]
        same = [known for known in self._all if known.rpartition("/")[2] == name]
        found = nearest(place, same) or (same[0] if len(same) == 1 else None) or nearest(place, self._all)
        return found.replace("/", ".") if found else None

    def names(self, place: str) -> list[str]:
        """The names that a module is known to have."""
        path = self.file(place)
        module = self.module(path) if path is not None else None
        inner = [name.removesuffix(".py") for name in self.files.names(place)]
        return [*(module.bound if module else ()), *inner]

    @functools.cached_property
    def _all(self) -> list[str]:
        places = (path.removesuffix(".py").removesuffix("/__init__") for path in self.files.walk() if path.endswith(".py"))
        return sorted(place for place in places if place.partition("/")[0] not in ASIDE)

    def elsewhere(self, name: str) -> list[str]:
        """The files that define a function or class of that name at their top level."""
        return self._definitions.get(name, []) if self._hints else []

    @functools.cached_property
    def _definitions(self) -> dict[str, list[str]]:
        if self.files.promised:
            return {}
        done = git.run(
            ["grep", "-I", "-z", "-E", "-e", _DEFINITIONS, self.files.tree, "--", "*.py"],
            env={"GIT_DIR": str(self.files.objects.repository)},
            accept=(0, 1),
        )
        found: dict[str, list[str]] = {}
        for line in done.stdout.decode("utf-8", "surrogateescape").split("\n"):
            head, _, text = line.partition("\0")
            path, named = head.partition(":")[2], _NAMED.match(text)
            if named and path.partition("/")[0] not in ASIDE:
                found.setdefault(named[1], []).append(path)
        return found


def _root(files: Files, path: str) -> str:
    """The folder that a file's own top-level package lies in; a script's own folder."""
    root = folder = path.rpartition("/")[0]
    while folder:
        above = folder.rpartition("/")[0]
        if files.is_file(f"{folder}/__init__.py"):
            root = above
        folder = above
    return root


def headers(data: bytes, name: str) -> list[bytes]:
    """The text of the parameters of all functions of that name, in order, wherever they stand in the file."""
    word = b"def " + name.encode("utf-8", "replace") + b"("
    found = []
    place = data.find(word)
    while place >= 0:
        line = data[data.rfind(b"\n", 0, place) + 1 : place].strip()
        rest = _PARAMETERS.match(data, place + len(word) - 1) if line in (b"", b"async") else None
        if rest is not None:
            found.append(rest[1])
        place = data.find(word, place + 1)
    return found
