# SPDX-License-Identifier: Apache-2.0
"""How upstream's `.gitattributes` say that files are merged.

`git merge-tree` in a bare repository reads none of them. So they are read here, as the new base has them, and handed over with the
files' own names. A driver that only a user's configuration defines is none: git merges such a file as text.
"""

import functools
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from stack.carry.export import NO_ATTRIBUTES
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

APART = "-merge"
"""The lines of such a file are never merged: where both sides changed it, a person has to make it anew."""
UNION = "merge=union"
"""Both sides' lines are kept."""

_FILE = ".gitattributes"
_WAYS = {"unset": APART, "binary": APART, "union": UNION}
# A file without any of these words says nothing about merging.
_SAYS_SOMETHING = re.compile(rb"merge|binary|\[attr\]")
_NOTHING: Mapping[str, str] = MappingProxyType({})


def merging(objects: Objects, tree: str, paths: Iterable[str]) -> Mapping[str, str]:
    """Of some paths of a tree, those that are not merged as git merges any text, each with its attribute."""
    names = tuple(sorted(set(paths)))
    folders = {folder for name in names for folder in PurePosixPath(name).parents}
    files = {str(folder / _FILE): objects.entry(tree, str(folder / _FILE)) for folder in folders}
    stated: dict[str, Entry | None] = {
        path: entry for path, entry in files.items() if entry is not None and entry.mode in FILES
    }
    if not any(entry is not None and _SAYS_SOMETHING.search(objects.read(entry.id)) for entry in stated.values()):
        return _NOTHING
    small = objects.replaced(EMPTY_TREE, stated)
    return _asked(objects.repository, small, names)


def lines(ways: Mapping[str, str]) -> bytes:
    """These attributes as a file of git's."""
    return b"".join(b'"/%s" %s\n' % (_pattern(path), way.encode("ascii")) for path, way in ways.items())


def _pattern(path: str) -> bytes:
    """A pattern that fits one path, to stand between quotes: both have a backslash of their own."""
    literal = re.sub(rb"([\\*?\[])", rb"\\\1", path.encode("utf-8", "surrogateescape"))
    return re.sub(rb'[\\"\x00-\x1f]', lambda found: b"\\%03o" % found[0][0], literal)


@functools.lru_cache(maxsize=256)
def _asked(repository: Path, stated: str, names: tuple[str, ...]) -> Mapping[str, str]:
    """Ask git about paths, with `stated` as the tree of all `.gitattributes` that count."""
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        place = {"GIT_DIR": str(repository), "GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run(["read-tree", stated], env=place)
        asked = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
        command = [*NO_ATTRIBUTES, "check-attr", "--cached", "-z", "--stdin", "merge"]
        said = git.run(command, env=place, stdin=asked).stdout.decode("utf-8", "surrogateescape").split("\0")
    return {path: _WAYS[value] for path, value in zip(said[::3], said[2::3], strict=False) if value in _WAYS}
