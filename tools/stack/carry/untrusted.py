# SPDX-License-Identifier: Apache-2.0
"""Refuse unsafe checkouts: those with a `.stack` folder in git, or with named pipes or devices in place of files."""

import os
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.model.stack import FOLDER as SERIES
from stack.model.switch import FOLDER
from stack.store import git


def check(root: Path) -> None:
    """Refuse a stack whose series have a named pipe or a device, or whose `.stack` folder was not made by this program.

    This program's `.stack` is never in git, and has only files and folders, no links.

    Raises:
        StackError: the stack has one of these.

    """
    files.check_plain(root / SERIES)
    folder = root / FOLDER
    if not os.path.lexists(folder):
        return
    files.check_tree(folder)
    # A file system monitor named in the checkout's own configuration must not run here.
    listed = git.run(["-c", "core.fsmonitor=false", "ls-files", "-z", "--", f":(icase){FOLDER}"], cwd=root, accept=(0, 128))
    if listed.returncode == 0 and listed.stdout:
        first = os.fsdecode(listed.stdout.split(b"\0")[0])
        raise StackError(
            f"{root}: git tracks {first!r}, but {FOLDER} holds what stack writes for itself",
            f"look at who committed it, then: git rm -r --cached {FOLDER}, and remove the folder",
        )
