# SPDX-License-Identifier: Apache-2.0
"""The verdicts of `spark-stack check` on this machine: where they are kept, and the newest of them."""

from pathlib import Path

from stack.base.errors import StackError
from stack.model import verdict
from stack.model.verdict import Verdict
from stack.store import cache

_NAME = "check-"


def folder(state: Path) -> Path:
    """Return the folder of verdicts beside the state file of the server."""
    return state.parent / "verdicts"


def write(place: Path, made: Verdict) -> Path:
    """Write a verdict to a file of its own, whole and on disk.

    Raises:
        StackError: it cannot be written.

    """
    stamp = made.made.replace(":", "").replace("-", "")
    return write_to(place / f"{_NAME}{stamp}.json", made)


def write_to(file: Path, made: Verdict) -> Path:
    """Write a verdict to a file, whole and on disk.

    Raises:
        StackError: it cannot be written.

    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        cache.put(file, verdict.write(made))
    except OSError as failed:
        raise StackError(
            f"{file} cannot be written ({failed.strerror})", "make room or check its rights, then check again"
        ) from failed
    return file


def newest(place: Path) -> Path:
    """Return the newest verdict.

    Raises:
        StackError: there is none.

    """
    found = sorted(place.glob(f"{_NAME}*.json"))
    if not found:
        raise StackError(f"there is no verdict in {place}", "spark-stack check makes one")
    return found[-1]
