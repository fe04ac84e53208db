# SPDX-License-Identifier: Apache-2.0
"""Find the Python modules of a source tree and their names without importing them.

A module's place is its path without suffix (`vllm/utils`). In doubt, a module or name counts as present: in a module that makes
names at run time, in one that the build makes, after a star import from outside the tree.
"""

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from stack.carry.drift import reexports
from stack.carry.drift.finding import nearest
from stack.carry.drift.outline import Defined, Definition, Known, Outline, outline
from stack.carry.drift.tree import ASIDE, Files
from stack.store import git

_ROOTS = ("", "src", "python")
_DEPTH = 12
"""Upper bound of the re-exports that are followed."""
# A pattern that begins with a line feed is found many times as fast as one for the start of a line.
_TOP = re.compile(rb"\n(?:(?:async )?def (\w+)\(|class (\w+)[(:]|(\w+)(?: = |: ))")
_PARAMETERS = re.compile(rb"(\(.*?\)[^\n]*:)[ \t]*(?:#.*)?$", re.MULTILINE | re.DOTALL)
_DEFINITIONS = r"^(async +def|def|class) +[A-Za-z]"
_NOTHING = Defined(frozenset(), frozenset())


@dataclass(frozen=True, slots=True)
class Imported:
    """The target of an import: the module `place` (then `name` is None), or a name in it; `place` None: not in this tree."""

    place: str | None
    name: str | None


@dataclass(slots=True)
class Module:
    """The names that a module binds at its top level; None stands for anything but an import or a definition."""

    bound: dict[str, list[Imported | Definition | None]] = field(default_factory=dict)
    stars: list[str | None] = field(default_factory=list)
    dynamic: bool = False


class Modules:
    """The modules of one tree; `known` is a cache that several trees may share."""

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
        """Return the file of the module at a place; None if there is none, or only a folder (a namespace package)."""
        if place not in self._files:
            paths = (f"{place}/__init__.py", f"{place}.py", f"{place}/__init__.pyi", f"{place}.pyi")
            self._files[place] = next(filter(self.files.is_file, paths), None)
        return self._files[place]

    def exists(self, place: str) -> bool:
        """Return whether a module exists, or may exist."""
        if self.file(place) or self.files.is_unknown(place) or self.files.is_folder(place):
            return True
        folder, _, name = place.rpartition("/")
        return any(
            found.startswith(f"{name}.") and found.endswith((".so", ".pyx", ".pyd")) for found in self.files.names(folder)
        )

    def belongs(self, top: str, importer: str) -> str | None:
        """Return the place of a top-level package or module for an importing file; None if it is not in the tree."""
        key = top, importer.rpartition("/")[0]
        if key not in self._belongs:
            roots = dict.fromkeys((_root(self.files, importer), *_ROOTS))
            self._belongs[key] = next(filter(self.file, (f"{root}/{top}" if root else top for root in roots)), None)
        return self._belongs[key]

    def place(self, importer: str, level: int, dotted: str) -> str | None:
        """Return the place that an import names; None if it is outside this tree."""
        if not level:
            top, _, rest = dotted.partition(".")
            place = self.belongs(top, importer)
            return "/".join([place, *rest.split(".")]) if place and rest else place
        parts = importer.split("/")[:-1]
        if level - 1 > len(parts) or not parts:
            return None
        return "/".join([*parts[: len(parts) - level + 1], *(dotted.split(".") if dotted else [])]) or None

    def missing(self, place: str, before: "Modules | None") -> bool:
        """Return whether a module certainly does not exist. If the build may make it, the tree `before` decides."""
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
        """Return whether a module is not a package but may hold others, since it uses `sys.modules`."""
        path = self.file(place)
        return path is not None and "/__init__." not in path and b"sys.modules" in (self.files.read(path) or b"")

    def lacks(self, place: str, name: str, before: "Modules | None") -> bool:
        """Return whether an existing module certainly lacks a name."""
        if self.provides(place, name) is not False:
            return False
        inner = f"{place}/{name}"
        if self.files.may_be_made(inner):
            return before is not None and before.file(inner) is not None and not self.files.declares(inner)
        return True

    def provides(self, place: str, name: str, depth: int = _DEPTH) -> bool | None:
        """Return whether the module at a place has a name; None if that is not certain."""
        key = (place, name)
        if key not in self._provides:
            self._provides[key] = None  # Ends the recursion if modules star-import each other.
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
        """Resolve a name of a module to (place, None) for a module, or (place, definition) for a function or class.

        Return None if it is anything else, or ambiguous.
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
        """Return whether an unindented line defines or assigns a name; this finds most names without parsing the file."""
        return name.encode("utf-8", "replace") in self._defined(path).names

    def defines_class(self, path: str, name: str) -> bool:
        """Return whether a file defines a class of that name at its top level."""
        return name.encode("utf-8", "replace") in self._defined(path).classes

    def _defined(self, path: str) -> Defined:
        entry = self.files.entry(path)
        if entry is None:
            return _NOTHING
        if entry.id not in self._known.defined:
            matches = _TOP.findall(b"\n" + (self.files.read(path) or b""))
            names = frozenset(function or klass or variable for function, klass, variable in matches)
            self._known.defined[entry.id] = Defined(names, frozenset(klass for _, klass, _ in matches if klass))
        return self._known.defined[entry.id]

    def reexport(self, path: str, name: str) -> str | None:
        """Return the place from which a file imports a name, by its text; None unless it does so once and without renaming."""
        if (path, name) not in self._reexports:
            self._reexports[path, name] = self._reexport(path, name)
        return self._reexports[path, name]

    def _reexport(self, path: str, name: str) -> str | None:
        entry = self.files.entry(path)
        if entry is None or self.is_defined(path, name):
            return None
        if entry.id not in self._known.imports:
            self._known.imports[entry.id] = reexports.imports(self.files.read(path) or b"")
        found = reexports.single(self._known.imports[entry.id], name.encode("utf-8", "replace"))
        return None if found is None else self.place(path, found.level, found.module)

    def is_plain(self, imported: Imported) -> bool:
        """Return whether an imported name certainly is not a module but a function, a class or a value."""
        if imported.place is None or imported.name is None:
            return imported.place is None
        path = self.file(imported.place)
        return path is not None and self.is_defined(path, imported.name)

    def follow(self, imported: Imported, depth: int = _DEPTH) -> tuple[str, Definition | None] | None:
        """Resolve an imported name like `resolve`."""
        if imported.place is None:
            return None
        if imported.name is None:
            return (imported.place, None) if self.exists(imported.place) else None
        return self.resolve(imported.place, imported.name, depth - 1)

    def module(self, path: str) -> Module | None:
        """Return the names that a file binds; None if it cannot be parsed."""
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
        """Yield the names that an import in a file binds, with their targets."""
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
        """Return the module that a missing module may have become, as a dotted name."""
        if not self._hints:
            return None
        name = place.rpartition("/")[2]
        same = [known for known in self._all if known.rpartition("/")[2] == name]
        found = nearest(place, same) or (same[0] if len(same) == 1 else None) or nearest(place, self._all)
        return found.replace("/", ".") if found else None

    def names(self, place: str) -> list[str]:
        """Return the known names of a module."""
        path = self.file(place)
        module = self.module(path) if path is not None else None
        inner = [name.removesuffix(".py") for name in self.files.names(place)]
        return [*(module.bound if module else ()), *inner]

    @functools.cached_property
    def _all(self) -> list[str]:
        places = (path.removesuffix(".py").removesuffix("/__init__") for path in self.files.walk() if path.endswith(".py"))
        return sorted(place for place in places if place.partition("/")[0] not in ASIDE)

    def elsewhere(self, name: str) -> list[str]:
        """Return the files that define a function or class of that name at their top level."""
        lines = self._definitions if self._hints else ""
        found = []
        for match in re.finditer(rf"\0(?:async +)?(?:def|class) +{re.escape(name)}(?!\w)", lines):
            found.append(lines[lines.rfind("\n", 0, match.start()) + 1 : match.start()].partition(":")[2])
        return found

    @functools.cached_property
    def _definitions(self) -> str:
        r"""Return all lines that define a function or class at the top level of a file, each as `<tree>:<path>\0<text>`."""
        if self.files.promised:
            return ""
        where = ["*.py", *(f":(exclude){aside}/*" for aside in sorted(ASIDE))]
        done = git.run(
            ["grep", "-I", "-z", "-E", "-e", _DEFINITIONS, self.files.tree, "--", *where],
            env={"GIT_DIR": str(self.files.objects.repository)},
            accept=(0, 1),
        )
        return done.stdout.decode("utf-8", "surrogateescape")


def _root(files: Files, path: str) -> str:
    """Return the folder with a file's top-level package, or a script's own folder."""
    root = folder = path.rpartition("/")[0]
    while folder:
        above = folder.rpartition("/")[0]
        if files.is_file(f"{folder}/__init__.py"):
            root = above
        folder = above
    return root


def headers(data: bytes, name: str) -> list[bytes]:
    """Return the parameters' text of all functions of that name in a file, in order."""
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
