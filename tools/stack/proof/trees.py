# SPDX-License-Identifier: Apache-2.0
"""Source trees as folders, for tools that need files: one folder a tree id, made once, never changed; or one that is moved on."""

import shutil
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
