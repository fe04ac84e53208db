# SPDX-License-Identifier: Apache-2.0
"""Files that this tool writes into the user's own repository for a CI, outside of the stack's folder."""

import os
import re
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.store import git

_FOLDER = re.compile(r"(?:[A-Za-z0-9._-]+/)*")


def place(root: Path) -> tuple[Path, str]:
    """Return the folder of the repository, and the stack's folder below it with a slash at its end; empty for the same.

    Raises:
        StackError: the stack is not in a git repository, or its folder's name cannot stand in a file of a CI.

    """
    shown = git.run(["rev-parse", "--show-toplevel", "--show-prefix"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{root} is not in a git repository", "run `git init` there, or clone your repository")
    top, _, folder = os.fsdecode(shown.stdout).removesuffix("\n").partition("\n")
    check_folder(folder)
    return Path(top), folder


def check_folder(folder: str) -> None:
    """Refuse a stack's folder that cannot stand in a file of a CI; it is empty or ends with a slash.

    Raises:
        StackError: its name has other characters than plain names have.

    """
    if not _FOLDER.fullmatch(folder):
        raise StackError(f"the stack's folder {folder!r} has characters that a workflow cannot hold", "move it to a plain name")


def write(top: Path, path: str, text: str, *, force: bool) -> bool:
    """Write a file below a folder, without following links; return whether it changed.

    Raises:
        StackError: the file is there and differs, and `force` is not set.

    """
    *folders, name = path.split("/")
    made = text.encode()
    with files.opened(top) as opened, opened.below(*folders, create=True) as there:
        before = there.read(name)
        if before is not None and before != made and not force:
            raise StackError(f"{top / path} is there and differs", "look at it, then run it with --force to replace it")
        if before != made:
            there.write(f".{name}.part", made)
            there.move(f".{name}.part", there, name)
    return before != made
