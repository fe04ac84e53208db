# SPDX-License-Identifier: Apache-2.0
"""Read files of the user's repository that are copies of upstream's."""

import os
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document

LARGEST = 4 * 2**20
"""Bytes of the largest file that is read."""


class Own:
    """The user's repository: the folder with `.git` at or above the stack's, or the stack's own folder."""

    def __init__(self, root: Path) -> None:
        stack = root.resolve()
        self.root = next((folder for folder in (stack, *stack.parents) if (folder / ".git").exists()), stack)

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            StackError: the file is missing, too large, not a regular file, or its path leads out of the repository.

        """
        place = self.root / path
        try:
            outside = not place.resolve().is_relative_to(self.root)
        except (RuntimeError, OSError) as loop:  # Python before 3.13 raises a RuntimeError
            raise StackError(f"{place} is a link that leads to itself", "name the file itself") from loop
        if outside:
            raise StackError(f"{place} is a link that leaves the repository", "name the file itself")
        return document.read_bytes(place, missing=f"name a file below {self.root}", largest=LARGEST)

    def fault(self, path: str) -> str:
        """Return why a copy cannot be read; empty if it can."""
        try:
            self.read(path)
        except StackError as failed:
            there = os.path.isfile(self.root / path)  # noqa: PTH113  (`is_file` raises for a name that is too long)
            return f"{path} cannot be read: {failed.problem}" if there else f"{path} of yours is gone"
        return ""
