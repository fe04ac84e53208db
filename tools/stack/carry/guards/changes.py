# SPDX-License-Identifier: Apache-2.0
"""Measure how much of a copied text upstream has changed, with git's own diff."""

import re
from dataclasses import dataclass

from stack.store import git
from stack.store.objects import Objects

_HEADER = re.compile(r"\A(?:diff|index|similarity|old|new)[^\n]*\n(?:(?:index|old|new|deleted|similarity)[^\n]*\n)*")
_NAMES = re.compile(r"\A--- [^\n]*\n\+\+\+ [^\n]*\n")


@dataclass(frozen=True, slots=True)
class Change:
    """The changed share of a text, from 0 to 1, and the diff."""

    share: float
    diff: str


def compared(objects: Objects, name: str, old: bytes, new: bytes) -> Change:
    """Compare two versions of a text: the share is that of added and removed lines among the lines of both.

    Raises:
        StackError: git cannot compare them.

    """
    blobs = [objects.write_blob(old), objects.write_blob(new)]
    show = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--text", *blobs]
    text = git.run(show, env={"GIT_DIR": str(objects.repository)}).stdout.decode("utf-8", "replace")
    body = _NAMES.sub("", _HEADER.sub("", text))
    changed = sum(line.startswith(("+", "-")) for line in body.split("\n"))
    lines = len(old.splitlines()) + len(new.splitlines())
    return Change(min(1.0, changed / lines) if lines else 0.0, f"--- {name}\n+++ {name}\n{body}" if body else "")
