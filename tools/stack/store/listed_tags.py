# SPDX-License-Identifier: Apache-2.0
"""Keep the tags that a remote or registry has listed, for those who do not ask it again: working trees, and shells that complete."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stack.base.errors import StackError
from stack.model import document
from stack.model.ids import CommitId
from stack.store import cache, git

_FILE = "stack-tags"
_LARGEST = 64 << 20
_LINE = re.compile(r"([0-9a-f]{40}|-) ([A-Za-z0-9][A-Za-z0-9._+/@-]*)")
"""A tag and its commit; a registry names none."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,99}")
_MOST = 5000
_BAD = re.compile(r"\.\.|@\{|//|/\.|\.lock(/|$)|[./]$")
"""Matches names that git refuses for a reference, although `_LINE` takes them."""


def keep(store: Path, tags: Mapping[str, str]) -> None:
    """Write the commit of each tag beside the objects of a store. Losing them costs nothing but a list."""
    lines = "".join(f"{commit} {tag}\n" for tag, commit in sorted(tags.items()))
    with contextlib.suppress(OSError, UnicodeEncodeError):
        if not (store / _FILE).is_file() or (store / _FILE).read_bytes() != lines.encode():
            cache.put(store / _FILE, lines.encode())


def keep_names(store: Path, tags: Iterable[str]) -> None:
    """Add tags that a registry has listed to those of the remote."""
    if store.is_dir():
        keep(store, dict.fromkeys(tags, "-") | _listed(store))


def names(store: Path) -> tuple[str, ...]:
    """Return the last 5000 listed tags that a shell may be shown."""
    plain = [tag for tag in _listed(store) if _PLAIN.fullmatch(tag)]
    return tuple(plain[-_MOST:])


def known(store: Path) -> dict[str, CommitId]:
    """Return the commit of each listed tag whose commit the store has. Nothing is fetched."""
    listed = {tag: commit for tag, commit in _listed(store).items() if commit != "-" and not _BAD.search(tag)}
    asked = ["cat-file", "--batch-check=%(objecttype)", "--buffer"]
    ids = "".join(f"{commit}\n" for commit in listed.values()).encode()
    answers = git.run(asked, stdin=ids, env={"GIT_DIR": str(store), **git.HERE_ONLY}).stdout.decode().splitlines()
    return {tag: CommitId(commit) for (tag, commit), kind in zip(listed.items(), answers, strict=True) if kind == "commit"}


def _listed(store: Path) -> dict[str, str]:
    """Read the commit of each listed tag, or a dash."""
    try:
        lines = document.read_bytes(store / _FILE, largest=_LARGEST).decode("utf-8", "replace").splitlines()
    except StackError:
        return {}
    return {match[2]: match[1] for line in lines if (match := _LINE.fullmatch(line))}
