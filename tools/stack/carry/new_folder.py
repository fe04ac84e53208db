# SPDX-License-Identifier: Apache-2.0
"""Make a folder of the user's that appears whole, and never write into one that holds something."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.base.errors import StackError
from stack.model import switch
from stack.model.stack import FOLDER, Stack


def check_empty(folder: Path) -> None:
    """Refuse a path at which a new folder cannot be made.

    Raises:
        StackError: it exists and is not an empty folder, or is a dangling link.

    """
    if folder.is_symlink() and not folder.exists():
        raise StackError(f"{folder} is a dangling link", "remove it, or name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StackError(f"{folder} is not an empty folder", "name one that does not exist yet")


def check_free(stack: Stack, folder: Path) -> None:
    """Refuse a path that holds something, or that is one of the stack's own folders.

    Raises:
        StackError: it is.

    """
    check_empty(folder)
    inside = (stack.root / name for name in (FOLDER, switch.FOLDER))
    if any(folder.resolve().is_relative_to(place.resolve()) for place in inside):
        raise StackError(f"{folder} is inside of the stack's own files", "name a folder beside the stack")


@contextmanager
def aside(folder: Path) -> Iterator[Path]:
    """Make a temporary folder that is renamed to `folder` when it is complete, so that a killed command can be repeated.

    Raises:
        StackError: the folder cannot be written, for example since the disk is full.

    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            part.chmod(0o755)
            yield part
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as failed:
        raise StackError(f"{folder} cannot be written ({failed.strerror})", "free disk space or check its rights") from failed
