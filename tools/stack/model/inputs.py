# SPDX-License-Identifier: Apache-2.0
"""The inputs of a case: everything that decides its outcome. A verdict stays valid while they are unchanged.

An input is a part of an upstream's carried tree, or the validation's own files. For a tree, only the pin and the changed files
are listed: all other files follow from the pin.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from stack.model import digest, effect
from stack.model.ids import Sha256
from stack.model.stack import Stack

PIN = "(pin)"
"""Key for the pins of an upstream and of those vendored in it; the parentheses keep it distinct from a file's path."""
CODE = "validation code"
"""Name of the validation's own files as an input; an upstream's name has no blanks."""
Selection = tuple[str, ...] | None
"""Paths and patterns (* for any text) of files in a tree; `PIN` for all unpatched files. None: the whole tree. Empty: nothing."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a case.

    `of` is an upstream's name or `CODE`, `files` the selected files, and `content` the id of each relevant file by its path.
    """

    of: str
    files: Selection
    content: Mapping[str, str]

    @property
    def digest(self) -> Sha256:
        """SHA-256 over all fields."""
        files = None if self.files is None else sorted(self.files)
        whole = json.dumps([self.of, files, dict(self.content)], sort_keys=True, separators=(",", ":"))
        return Sha256(hashlib.sha256(whole.encode()).hexdigest())


def of_upstream(stack: Stack, upstream: str, files: Selection = None) -> Input:
    """Describe an upstream's carried tree, or some of its files, as an input.

    Raises:
        StackError: The upstream is unknown, or a diff cannot be read.

    """
    content: dict[str, str] = {PIN: digest.of_pins(stack, upstream)} if files != () else {}
    changed = effect.of(stack).get(upstream)
    for path, mode, blob in effect.listed(changed) if changed is not None else ():
        if files is None or any(fnmatchcase(path, pattern) for pattern in files):
            content[path] = f"{mode} {blob}" if blob else "removed"
    return Input(upstream, None if files is None else tuple(sorted(set(files))), MappingProxyType(content))


def of_code(content: Mapping[str, str]) -> Input:
    """Describe files of the validation as an input; `content` maps a path to the hash of its bytes."""
    return Input(CODE, None, MappingProxyType(dict(content)))


def changed(before: Input, now: Input) -> Iterator[str]:
    """Yield the names of the entries that differ between two inputs."""
    for name in sorted({*before.content, *now.content}):
        if before.content.get(name) != now.content.get(name):
            yield name


def shown(names: Sequence[str]) -> str:
    """Name the first two changed entries and count the others."""
    first = ", ".join(names[:2])
    return first if len(names) <= 2 else f"{first} and {len(names) - 2} more"
