# SPDX-License-Identifier: Apache-2.0
"""Refuse unsafe checkouts: those with a `.stack` folder in git, or with named pipes or devices in place of files."""

import os
from pathlib import Path

from stack.base import files
from stack.base.errors import StackError
from stack.model.stack import FOLDER as SERIES
from stack.model.switch import FOLDER
from stack.store import git

_SECONDS = 20.0
"""Time limit of git, which waits without end for a named pipe in `.git`."""
_MOST = 16 * 2**20
"""Bytes of the longest list of tracked files that is read."""


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
    asked = ["-c", "core.fsmonitor=false", "ls-files", "-z", "--", f":(icase){FOLDER}"]
    try:
        listed = git.bounded(asked, cwd=root, most=_MOST, seconds=_SECONDS, accept=(0, 128))
    except git.Unanswered as bad:
        raise StackError(
            f"{root}: {bad.problem}", "look for named pipes in .git and in the files that .git/config includes"
        ) from bad
    if listed.returncode == 0 and listed.stdout:
        first = os.fsdecode(listed.stdout.split(b"\0")[0])
        raise StackError(
            f"{root}: git tracks {first!r}, but {FOLDER} holds what stack writes for itself",
            f"look at who committed it, then: git rm -r --cached {FOLDER}, and remove the folder",
        )
