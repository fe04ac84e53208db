# SPDX-License-Identifier: Apache-2.0
"""Refuse a `.stack` that came with a checkout: our own is never in git, and holds nothing but files and folders."""

import os
from pathlib import Path

from stack.model import files
from stack.model.errors import StackError
from stack.model.switch import FOLDER
from stack.store import git


def check(root: Path) -> None:
    """Refuse the `.stack` of a stack's folder if git tracks anything of it, or if it holds a link, a named pipe or a device.

    Raises:
        StackError: it does.

    """
    folder = root / FOLDER
    if not os.path.lexists(folder):
        return
    files.check_tree(folder)
    # A hook of the checkout's own configuration must not run here.
    listed = git.run(["-c", "core.fsmonitor=false", "ls-files", "-z", "--", f":(icase){FOLDER}"], cwd=root, accept=(0, 128))
    if listed.returncode == 0 and listed.stdout:
        first = os.fsdecode(listed.stdout.split(b"\0")[0])
        raise StackError(
            f"{root}: git tracks {first!r}, but {FOLDER} holds what stack writes for itself",
            f"look at who committed it, then: git rm -r --cached {FOLDER}, and remove the folder",
        )
