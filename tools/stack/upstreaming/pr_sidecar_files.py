# SPDX-License-Identifier: Apache-2.0
"""What is kept of a pull request in the stack's own folder: its description, and files beside it that differ by their suffix."""

from pathlib import Path

from stack.base.errors import StackError
from stack.model.switch import FOLDER
from stack.store import cache
from stack.upstreaming.proposal import Proposal


def file(root: Path, proposal: Proposal, suffix: str) -> Path:
    """Where it stands; `suffix` begins with its dot."""
    return root / FOLDER / "pulls" / f"{proposal.name}{suffix}"


def put(root: Path, proposal: Proposal, suffix: str, text: str) -> Path:
    """Write a text there (surrogates as the bytes that they stand for); returns the file.

    Raises:
        StackError: it cannot be written.

    """
    place = file(root, proposal, suffix)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        cache.put(place, text.encode("utf-8", "surrogateescape"))
    except OSError as failed:
        raise StackError(f"{place} cannot be written ({failed.strerror})", "check the folder's rights") from failed
    return place
