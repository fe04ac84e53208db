# SPDX-License-Identifier: Apache-2.0
"""Read from upstream's `.gitattributes` how files are merged.

`git merge-tree` in a bare repository does not read these files. So they are read here from the new base, and passed to git with
the files' own paths. A merge driver that only a user's configuration defines is ignored: git merges such a file as text.
"""

import functools
import re
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from stack.carry.export import NO_ATTRIBUTES
from stack.store import git
from stack.store.objects import EMPTY_TREE, FILES, Entry, Objects

APART = "-merge"
"""The lines of such a file are never merged: if both sides changed it, a person has to make it anew."""
UNION = "merge=union"
"""Both sides' lines are kept."""

_FILE = ".gitattributes"
_WAYS = {"unset": APART, "binary": APART, "union": UNION}
# A `.gitattributes` file without any of these words has no merge attributes.
_SAYS_SOMETHING = re.compile(rb"merge|binary|\[attr\]")
_NOTHING: Mapping[str, str] = MappingProxyType({})


def merging(objects: Objects, tree: str, paths: Iterable[str]) -> Mapping[str, str]:
    """Return the merge attribute of each path that is not merged like ordinary text."""
    names = tuple(sorted(set(paths)))
    found = ((folder + _FILE, objects.entry(tree, folder + _FILE)) for folder in _folders(names))
    stated: dict[str, Entry | None] = {path: entry for path, entry in found if entry is not None and entry.mode in FILES}
    if not any(entry is not None and _SAYS_SOMETHING.search(objects.read(entry.id)) for entry in stated.values()):
        return _NOTHING
    small = objects.replaced(EMPTY_TREE, stated)
    return _asked(objects.repository, small, names)


def _folders(paths: Iterable[str]) -> set[str]:
    """Return the folders at and above the paths, each with a slash at its end; the tree's own is empty."""
    folders = {""}
    for path in paths:
        end = path.rfind("/")
        while end >= 0 and path[: end + 1] not in folders:
            folders.add(path[: end + 1])
            end = path.rfind("/", 0, end)
    return folders


def lines(ways: Mapping[str, str]) -> bytes:
    """Return the attributes as the text of a gitattributes file."""
    return b"".join(b'"/%s" %s\n' % (_pattern(path), way.encode("ascii")) for path, way in ways.items())


def _pattern(path: str) -> bytes:
    """Return a pattern that matches only this path, for use between quotes: escape it as a pattern, then as a quoted string."""
    literal = re.sub(rb"([\\*?\[])", rb"\\\1", path.encode("utf-8", "surrogateescape"))
    return re.sub(rb'[\\"\x00-\x1f]', lambda match: b"\\%03o" % match[0][0], literal)


@functools.lru_cache(maxsize=256)
def _asked(repository: Path, stated: str, names: tuple[str, ...]) -> Mapping[str, str]:
    """Ask git for the merge attributes of paths; `stated` is a tree of all `.gitattributes` files that apply."""
    with tempfile.TemporaryDirectory(prefix="stack-") as folder:
        place = {"GIT_DIR": str(repository), "GIT_INDEX_FILE": str(Path(folder) / "index")}
        git.run(["read-tree", stated], env=place)
        stdin = b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)
        command = [*NO_ATTRIBUTES, "check-attr", "--cached", "-z", "--stdin", "merge"]
        fields = git.run(command, env=place, stdin=stdin).stdout.decode("utf-8", "surrogateescape").split("\0")
    # Three fields for each path: the path, the attribute, its value.
    return {path: _WAYS[value] for path, value in zip(fields[::3], fields[2::3], strict=False) if value in _WAYS}
