# SPDX-License-Identifier: Apache-2.0
"""The inputs of a case: what decided its outcome, so that a verdict counts as long as these are the same.

An input is a part of an upstream's carried tree, or files of the validation. Of a tree only the pin and the changed files are
listed: all other files follow from the pin.
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
"""The entry of an input for the pins of an upstream and of those that it vendors: in brackets, as no file of a tree is named."""
CODE = "validation code"
"""The name of the validation's own files among inputs; no upstream's name has a blank."""
Selection = tuple[str, ...] | None
"""Paths and patterns (* for any text) of files in a tree, or `PIN` for all that no patch changes. None: the whole tree. Empty: nothing."""


@dataclass(frozen=True, slots=True)
class Input:
    """An upstream's name, or `CODE`; which of its files count; each of them that says something by its path, with its content's id."""

    of: str
    files: Selection
    content: Mapping[str, str]

    @property
    def digest(self) -> Sha256:
        """SHA-256 over all of it."""
        files = None if self.files is None else sorted(self.files)
        whole = json.dumps([self.of, files, dict(self.content)], sort_keys=True, separators=(",", ":"))
        return Sha256(hashlib.sha256(whole.encode()).hexdigest())


def of_upstream(stack: Stack, upstream: str, files: Selection = None) -> Input:
    """Describe an upstream's carried tree, or some files of it, as an input.

    Raises:
        StackError: there is no such upstream, or a diff cannot be read.

    """
    content: dict[str, str] = {PIN: digest.of_pins(stack, upstream)} if files != () else {}
    changed = effect.of(stack).get(upstream)
    for path, mode, blob in effect.listed(changed) if changed is not None else ():
        if files is None or any(fnmatchcase(path, pattern) for pattern in files):
            content[path] = f"{mode} {blob}" if blob else "removed"
    return Input(upstream, None if files is None else tuple(sorted(set(files))), MappingProxyType(content))


def of_code(content: Mapping[str, str]) -> Input:
    """Describe files of the validation, each with the hash of its bytes."""
    return Input(CODE, None, MappingProxyType(dict(content)))


def changed(before: Input, now: Input) -> Iterator[str]:
    """Name the entries that two inputs do not have alike."""
    for name in sorted({*before.content, *now.content}):
        if before.content.get(name) != now.content.get(name):
            yield name


def shown(names: Sequence[str]) -> str:
    """Name the first two of the changed entries, and count the others."""
    first = ", ".join(names[:2])
    return first if len(names) <= 2 else f"{first} and {len(names) - 2} more"
