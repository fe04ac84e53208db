# SPDX-License-Identifier: Apache-2.0
"""Check the includes in added C++ and CUDA lines."""

import functools
import posixpath
import re
from collections.abc import Iterator

from stack.carry.drift.finding import Drift
from stack.carry.drift.tree import ASIDE, Files
from stack.store import git

_SOURCES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".cu", ".c", ".cc", ".cpp", ".cxx", ".inl", ".inc", ".jinja")
_INCLUDE = re.compile(r"^\s*#\s*include\s*(?P<kind>[\"<])(?P<name>[^\">{}]+)[\">]")
_PROSE = (".md", ".rst", ".ipynb")
_DEEPEST = 3
"""Levels below the root in which folders named `include` or `csrc` are include roots."""
_OTHERS = frozenset({"3rdparty", "third_party", "thirdparty", "external", "extern", "deps"})
_VENDORED = _OTHERS | frozenset({"csrc", "cpp", "src", "lib", "include"})


class Includes:
    """Resolves includes in one tree."""

    def __init__(self, files: Files) -> None:
        self.files = files

    @functools.cached_property
    def roots(self) -> tuple[str, ...]:
        """Return the folders that are probably passed to the compiler as include folders."""
        found = ["", "csrc", "src", "include"]
        level = [""]
        for _ in range(_DEEPEST):
            level = [
                inner
                for folder in level
                for name in self.files.names(folder)
                if (folder or name in _VENDORED) and self.files.is_folder(inner := f"{folder}/{name}" if folder else name)
            ]
            found += [folder for folder in level if folder.rpartition("/")[2] in ("include", "csrc")]
        return tuple(dict.fromkeys(root for root in found if self.files.is_folder(root)))

    def places(self, path: str, name: str) -> list[str]:
        """Return the paths to which an include may resolve: from the file's folder, the folders above it, and the roots."""
        folders, folder = [], posixpath.dirname(path)
        while folder:
            folders.append(folder)
            folder = posixpath.dirname(folder)
        return [posixpath.normpath(posixpath.join(root, name)) for root in dict.fromkeys((*folders, *self.roots))]

    def found(self, path: str, name: str) -> str | None:
        """Return the path to which an include resolves: a file of the tree, or a path in a submodule; None if there is none."""
        return next(
            (place for place in self.places(path, name) if self.files.is_file(place) or self.files.is_unknown(place)), None
        )

    def owns(self, path: str, name: str) -> bool:
        """Return whether the first folder of an include is one of the tree's own."""
        first = name.partition("/")[0]
        if "/" not in name or first in (".", ".."):
            return "/" in name
        if first in _OTHERS:
            return False
        return any(self.files.is_folder(posixpath.join(root, first)) for root in (posixpath.dirname(path), *self.roots))

    def is_brought(self, path: str, name: str) -> bool:
        """Return whether the folder of an include is missing, and a build file or script names it: then the build may make it."""
        parts = [part for part in name.split("/")[:-1] if part not in (".", "..")]
        for depth in range(1, len(parts) + 1):
            if not any(self.files.is_folder(place) for place in self.places(path, "/".join(parts[:depth]))):
                return self.files.promised or self._is_named(parts[depth - 1])
        return False

    def _is_named(self, folder: str) -> bool:
        """Return whether a script or a build file names a folder, alone or in a path."""
        skipped = [f":(exclude)*{suffix}" for suffix in (*_SOURCES, *_PROSE)] + [
            f":(exclude){aside}/*" for aside in sorted(ASIDE)
        ]
        named = f"[\"'/]{re.escape(folder)}[\"'/]"
        search = ["grep", "-I", "-q", "-E", "-e", named, self.files.tree, "--", "*", *skipped]
        return git.run(search, env={"GIT_DIR": str(self.files.objects.repository)}, accept=(0, 1)).returncode == 0

    def ending(self, name: str) -> list[str]:
        """Return the files whose path ends with `name`."""
        plain = posixpath.normpath(name).lstrip("./")
        return [path for path in self._by_name.get(posixpath.basename(plain), ()) if f"/{path}".endswith(f"/{plain}")]

    @functools.cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.files.walk():
            found.setdefault(posixpath.basename(path), []).append(path)
        return found

    def same_name(self, name: str) -> list[str]:
        """Return the files with the same file name, in any folder."""
        return self._by_name.get(posixpath.basename(name), [])


def is_source(path: str) -> bool:
    """Return whether a file is C++ or CUDA."""
    return path.endswith(_SOURCES)


def check(path: str, added: frozenset[int], now: Includes, before: Includes | None) -> Iterator[Drift]:
    """Find the added includes of one file that do not resolve."""
    text = now.files.text(path)
    for number, line in enumerate(text.split("\n"), 1):
        include = _INCLUDE.match(line) if number in added else None
        if include is None or re.search(rf"__has_include\s*\(\s*[\"<]{re.escape(include['name'])}", text):
            continue
        name = include["name"].strip()
        if now.found(path, name):
            continue
        was = before.found(path, name) if before is not None else None
        if was is None and (not now.owns(path, name) or now.ending(name)):
            continue
        if any(now.files.may_be_made(place) for place in (was or name, posixpath.join(posixpath.dirname(path), name))):
            continue
        if was is None and now.is_brought(path, name):
            continue
        others = now.same_name(name)
        hint = f"there is {others[0]}" if others else "no file of the tree has that name"
        yield Drift(path, number, f"#include of {name} leads nowhere in this tree: {hint}")
