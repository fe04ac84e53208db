# SPDX-License-Identifier: Apache-2.0
"""Write source trees as folders for tools that need files: a folder per tree id, or one that moves between trees."""

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

from stack.model.ids import TreeId
from stack.store import cache as places
from stack.store import git
from stack.store.objects import Objects


def folder(objects: Objects, tree: TreeId, cache: Path) -> Path:
    """Return a folder with the files of a tree; the first call writes it.

    Raises:
        StackError: The folder cannot be written.

    """
    target = cache / "trees" / tree
    with places.lock(target):
        if not target.is_dir():
            part = target.with_name(f"{tree}.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            try:
                write(objects, tree, part)
                part.rename(target)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return target


def write(objects: Objects, tree: TreeId, target: Path) -> None:
    """Write the files of a tree into an empty folder.

    Raises:
        GitError: A file cannot be read or written.

    """
    index = target.with_suffix(".index")
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index)}
    try:
        git.run(["read-tree", tree], env=env)
        git.run(["checkout-index", "--all", "--force", f"--prefix={target}/"], env=env | {"GIT_WORK_TREE": str(target)})
    finally:
        index.unlink(missing_ok=True)


def move(objects: Objects, tree: TreeId, target: Path) -> None:
    """Change a folder to the files of a tree, touching only those that differ, so that earlier builds of the rest stay valid.

    Files left by a build are kept. Nobody else may use the folder meanwhile.

    Raises:
        GitError: A file cannot be read or written.

    """
    target.mkdir(parents=True, exist_ok=True)
    index = target.with_name(f"{target.name}.index")
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)  # left by a killed run
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
    git.run(["read-tree", "--reset", "-u", tree], env=env)


class MovingFolder:
    """A folder that moves between trees, since one per tree would take gigabytes; `moving` opens it.

    Python's compiled files of unchanged sources are kept. Everything else that runs left is removed, and changed files are restored.
    """

    def __init__(self, objects: Objects, place: Path) -> None:
        self._objects = objects
        self._place = place
        self._now = place / "now"

    def at(self, tree: TreeId) -> Path:
        """Return the folder with the files of a tree, valid until the next call.

        Raises:
            GitError: A file cannot be read or written.

        """
        folder = self._place / "tree"
        now = self._now.read_text() if self._now.is_file() else ""
        self._now.unlink(missing_ok=True)
        if not now:  # the folder is new, or a move was interrupted
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.mkdir(parents=True)
        elif now != tree:
            self._forget_compiled(TreeId(now), tree, folder)
        move(self._objects, tree, folder)
        _clean(self._objects, folder)
        self._now.write_text(tree)
        return folder

    def _forget_compiled(self, old: TreeId, new: TreeId, folder: Path) -> None:
        """Remove compiled files of changed sources: Python compares time (in seconds) and size, which may be equal in two trees."""
        for path, _, _ in self._objects.difference(old, new):
            source = folder / path
            for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
                compiled.unlink()


@contextlib.contextmanager
def moving(objects: Objects, upstream: str, cache: Path) -> Iterator[MovingFolder]:
    """Open a moving folder of the cache that no other process uses.

    Raises:
        StackError: The cache cannot be written.

    """
    for number in itertools.count():
        place = cache / "trees" / f"moving-{upstream}-{number}"
        with places.lock_if_free(place) as free:
            if free:
                place.with_name(f"{place.name}{places.LOCK}").touch()  # its time records the last use
                yield MovingFolder(objects, place)
                return


def _clean(objects: Objects, target: Path) -> None:
    index = target.with_name(f"{target.name}.index")
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
    git.run(["clean", "-ffdxq", "--exclude=__pycache__"], cwd=target, env=env)
