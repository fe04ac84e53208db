# SPDX-License-Identifier: Apache-2.0
"""Read a source tree's files, and tell which missing files its build makes."""

import functools
import posixpath
import re
from collections.abc import Iterator, Sequence

from stack.model.ids import TreeId
from stack.store.objects import FOLDER, SUBMODULE, Entry, Objects

LINK = 0o120000
_LINKS = 8
_BUILD_FILES = ("setup.py", "CMakeLists.txt", "build_backend.py", "build_utils.py", "hatch_build.py", "meson.build")
_COMPILED = re.compile(r"^_\w*C(_\w+)?$")
"""The usual names of extension modules: `_C`, `_moe_C`, `_C_stable_libtorch`."""
_MADE = re.compile(r"(_pb2(_grpc)?|^_version|^_build_meta)$")
ASIDE = frozenset({"tests", "test", "testing", "benchmarks", "docs", "examples", "recipes", "docker", "scripts", "ci", "tools"})
"""Folders that are not part of the package; the registry's archives often lack some of their files."""


class Files:
    """The files of one tree; links are followed."""

    def __init__(self, objects: Objects, tree: TreeId) -> None:
        self.objects = objects
        self.tree = tree
        self._known: dict[str, Entry | None] = {"": Entry(FOLDER, tree)}

    def entry(self, path: str) -> Entry | None:
        """Return the entry at a path: a file, a folder, or a submodule at or above it; None if there is nothing."""
        if path not in self._known:
            self._known[path] = self._follow(path, _LINKS)
        return self._known[path]

    def _follow(self, path: str, links: int) -> Entry | None:
        folder, _, name = path.rpartition("/")
        above = self.entry(folder)
        if above is None or above.mode != FOLDER:
            return above if above is not None and above.mode == SUBMODULE else None
        entry = self.objects.entries(above.id).get(name)
        if entry is None or entry.mode != LINK:
            return entry
        target = posixpath.normpath(posixpath.join(folder, self.objects.read(entry.id).decode("utf-8", "replace")))
        # A link that leaves the tree, or a cycle of links, is treated like a submodule: its content is unknown.
        return self._follow(target, links - 1) if links and not target.startswith(("/", "..")) else Entry(SUBMODULE, entry.id)

    def is_file(self, path: str) -> bool:
        """Return whether the path is a file."""
        entry = self.entry(path)
        return entry is not None and entry.mode not in (FOLDER, SUBMODULE)

    def is_folder(self, path: str) -> bool:
        """Return whether the path is a folder."""
        entry = self.entry(path)
        return entry is not None and entry.mode == FOLDER

    def is_unknown(self, path: str) -> bool:
        """Return whether the path is in a submodule, whose content this tree does not have."""
        entry = self.entry(path)
        return entry is not None and entry.mode == SUBMODULE

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None if the path is not a file."""
        entry = self.entry(path)
        return None if entry is None or entry.mode in (FOLDER, SUBMODULE) else self.objects.read(entry.id)

    def text(self, path: str) -> str:
        """Return a file's text; empty if the path is not a file."""
        return (self.read(path) or b"").decode("utf-8", "replace")

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        entry = self.entry(folder)
        return sorted(self.objects.entries(entry.id)) if entry is not None and entry.mode == FOLDER else []

    def walk(self, folder: str = "") -> Iterator[str]:
        """Yield the paths of all files below a folder; links are not followed."""
        start = self.entry(folder)
        stack = [(folder, start)] if start is not None else []
        while stack:
            path, entry = stack.pop()
            for name, found in self.objects.entries(entry.id).items() if entry.mode == FOLDER else ():
                inner = f"{path}/{name}" if path else name
                if found.mode == FOLDER:
                    stack.append((inner, found))
                elif found.mode != SUBMODULE:
                    yield inner

    @functools.cached_property
    def archive(self) -> bool:
        """Return whether this tree is a source archive, which has generated files and may lack others."""
        return self.is_file("PKG-INFO")

    def declares(self, place: str) -> bool:
        """Return whether a build file names the module or file at a path (without its suffix), or git ignores it."""
        dotted, name = place.replace("/", "."), place.rpartition("/")[2]
        words = [dotted, place, *([name] if name.startswith("_") else [])]
        if any(word in self._build and re.search(rf"(?<![\w./]){re.escape(word)}(?![\w.])", self._build) for word in words):
            return True
        return self._ignored(place, ("", ".py", ".pyi", ".h"))

    def may_be_made(self, place: str) -> bool:
        """Return whether the build may make a path that this tree lacks; in doubt, True."""
        parts = place.split("/")
        if any(_COMPILED.search(part) or _MADE.search(part) for part in parts):
            return True
        if self.archive and parts[0] in ASIDE:
            return True
        places = ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]
        return any(self.declares(above) for above in places if self.entry(above) is None)

    @functools.cached_property
    def _build(self) -> str:
        cmake = [f"cmake/{name}" for name in self.names("cmake") if name.endswith(".cmake")]
        return "\n".join(self.text(path) for path in (*_BUILD_FILES, *cmake))

    @functools.cached_property
    def _rules(self) -> list[tuple[bool, re.Pattern[str]]]:
        """Parse the patterns of `.gitignore` that name one place; skip those for any folder (`lib/`, `*.log`)."""
        rules = []
        for line in self.text(".gitignore").splitlines():
            kept, pattern = line.startswith("!"), line.strip().lstrip("!")
            plain = pattern.strip("/").removesuffix("/**").removesuffix("/*")
            if not plain or plain.startswith(("#", "*")) or ("/" not in plain and not pattern.startswith("/")):
                continue
            parts = re.split(r"(\*\*/|\*\*|\*|\?)", plain)
            glob = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
            rules.append((kept, re.compile("".join(glob.get(part, re.escape(part)) for part in parts))))
        return rules

    def _ignored(self, place: str, suffixes: Sequence[str]) -> bool:
        """Return whether `.gitignore` ignores a place, and does not except it from that."""
        parts = place.split("/")
        above = ["/".join(parts[:depth]) for depth in range(1, len(parts))]
        places = [*above, *(place + suffix for suffix in suffixes)]
        hits = [kept for kept, rule in self._rules if any(rule.fullmatch(path) for path in places)]
        return bool(hits) and not any(hits)

    @functools.cached_property
    def promised(self) -> bool:
        """Return whether the store lacks files of this tree: reading the whole tree could fetch them one by one."""
        return self.objects.lacks(self.tree)
