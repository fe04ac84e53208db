# SPDX-License-Identifier: Apache-2.0
"""The files that the stack's folder keeps for a pull request: its description, and others that differ in their suffix."""

from pathlib import Path

from stack.base.errors import StackError
from stack.model.switch import FOLDER
from stack.store import cache
from stack.upstreaming.proposal import Proposal


def file(root: Path, proposal: Proposal, suffix: str) -> Path:
    """Return the path of such a file; `suffix` begins with its dot."""
    return root / FOLDER / "pulls" / f"{proposal.name}{suffix}"


def put(root: Path, proposal: Proposal, suffix: str, text: str) -> Path:
    """Write a text to such a file (surrogates as the bytes they stand for), and return the path.

    Raises:
        StackError: the file cannot be written.

    """
    place = file(root, proposal, suffix)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        cache.put(place, text.encode("utf-8", "surrogateescape"))
    except OSError as failed:
        raise StackError(f"{place} cannot be written ({failed.strerror})", "check the folder's rights") from failed
    return place
