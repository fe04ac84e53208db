# SPDX-License-Identifier: Apache-2.0
"""Source trees as folders, for tools that need files: a folder for each tree id, or one that goes from tree to tree."""

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
    """The folder with the files of a tree.

    Raises:
        StackError: it cannot be written.

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
        GitError: a file cannot be read or written.

    """
    index = target.with_suffix(".index")
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index)}
    try:
        git.run(["read-tree", tree], env=env)
        git.run(["checkout-index", "--all", "--force", f"--prefix={target}/"], env=env | {"GIT_WORK_TREE": str(target)})
    finally:
        index.unlink(missing_ok=True)


def move(objects: Objects, tree: TreeId, target: Path) -> None:
    """Give a folder the files of a tree, and touch only those that are others: what was built of the rest stays good.

    Files that a build left are kept. The folder is the caller's alone as long as this runs.

    Raises:
        GitError: a file cannot be read or written.

    """
    target.mkdir(parents=True, exist_ok=True)
    index = target.with_name(f"{target.name}.index")
    index.with_name(f"{index.name}.lock").unlink(missing_ok=True)  # of a run that was killed
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
    git.run(["read-tree", "--reset", "-u", tree], env=env)


class MovingFolder:
    """A folder that goes from tree to tree, since a folder for each would take gigabytes; `moving` opens one.

    What Python has compiled of files that stay the same is kept. Everything else that runs have left is removed, and what they
    have changed is put back.
    """

    def __init__(self, objects: Objects, place: Path) -> None:
        self._objects = objects
        self._place = place
        self._now = place / "now"

    def at(self, tree: TreeId) -> Path:
        """The folder, with the files of a tree. It stays so until the next call.

        Raises:
            GitError: a file cannot be read or written.

        """
        folder = self._place / "tree"
        now = self._now.read_text() if self._now.is_file() else ""
        self._now.unlink(missing_ok=True)
        if not now:  # it is new, or a move was interrupted
            shutil.rmtree(self._place, ignore_errors=True)
            self._place.mkdir(parents=True)
        elif now != tree:
            self._forget_compiled(TreeId(now), tree, folder)
        move(self._objects, tree, folder)
        _clean(self._objects, folder)
        self._now.write_text(tree)
        return folder

    def _forget_compiled(self, old: TreeId, new: TreeId, folder: Path) -> None:
        """Python tells a changed source by its second and its size, which may be the same in two trees."""
        for path, _, _ in self._objects.difference(old, new):
            source = folder / path
            for compiled in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
                compiled.unlink()


@contextlib.contextmanager
def moving(objects: Objects, upstream: str, cache: Path) -> Iterator[MovingFolder]:
    """Open a moving folder of the cache that no other process uses.

    Raises:
        StackError: the cache cannot be written.

    """
    for number in itertools.count():
        place = cache / "trees" / f"moving-{upstream}-{number}"
        with places.lock_if_free(place) as free:
            if free:
                yield MovingFolder(objects, place)
                return


def _clean(objects: Objects, target: Path) -> None:
    index = target.with_name(f"{target.name}.index")
    env = {"GIT_DIR": str(objects.repository), "GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(target)}
    git.run(["clean", "-ffdxq", "--exclude=__pycache__"], cwd=target, env=env)
