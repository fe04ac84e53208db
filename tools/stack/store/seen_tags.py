# SPDX-License-Identifier: Apache-2.0
"""The release tags that a registry or remote listed last, for whoever may not ask it again: a shell that completes `--onto`."""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document
from stack.store import cache as places

_FILE = "seen-tags"
_MOST = 5000
_LARGEST = 2**20
# What the remote calls its tags reaches a shell.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,99}")


def remember(cache: Path, upstream: str, tags: Iterable[str]) -> None:
    """Keep the tags that were listed; a cache that cannot be written costs completions only."""
    store = places.upstream_store(cache, upstream)
    plain = [tag for tag in tags if _PLAIN.fullmatch(tag)][-_MOST:]
    with contextlib.suppress(OSError):
        if store.is_dir():
            places.put(store / _FILE, "".join(f"{tag}\n" for tag in plain).encode())


def recall(cache: Path, upstream: str) -> tuple[str, ...]:
    """Return the tags that were listed last, in that order; none if nothing was."""
    try:
        text = document.read_bytes(places.upstream_store(cache, upstream) / _FILE, largest=_LARGEST).decode("ascii", "replace")
    except StackError:
        return ()
    return tuple(tag for tag in text.splitlines() if _PLAIN.fullmatch(tag))
