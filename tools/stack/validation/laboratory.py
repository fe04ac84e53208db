# SPDX-License-Identifier: Apache-2.0
"""Find the laboratory of a stack's kernels: the Python package `laboratory` in its folder `kernels/`, which is not installed."""

import sys
from pathlib import Path

from stack.base.errors import StackError

HOME = "kernels"
"""The folder of a stack that is put on Python's path."""
PLACE = f"{HOME}/laboratory"


def folder(root: Path) -> Path:
    """Return the folder of the package below a stack's root. It need not exist."""
    return root / PLACE


def ready(root: Path) -> None:
    """Let this process import `laboratory` from a stack's folder. This runs code of the stack.

    Raises:
        StackError: the stack has no laboratory.

    """
    if not folder(root).is_dir():
        raise StackError(f"the stack has no {PLACE}", "run this in a checkout of the stack whose kernels it measures")
    home = str((root / HOME).resolve())
    if home not in sys.path:
        sys.path.append(home)
