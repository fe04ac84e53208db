# SPDX-License-Identifier: Apache-2.0
"""Show parts of a server's answers, and words that several questions share."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from stack.base.text import printable
from stack.doctor.finding import Found

KEY = "<key>"
"""Stands in place of the API key."""
_SHORT = 6
"""Letters of a key below which blanks within are not looked for: it may be a part of any sentence."""
_HIDDEN: ContextVar[str | None] = ContextVar("hidden", default=None)
SEE_LOG = "see the server's log: stack doctor --log FILE"


@contextmanager
def hiding(key: str | None) -> Iterator[None]:
    """Take a key out of all that is shown meanwhile: who sees a finding need not know it."""
    token = _HIDDEN.set(key)
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def without(key: str | None, text: str) -> str:
    """Return a text without the key, also where blanks or characters that are not ASCII stand between its letters."""
    if not key:
        return text
    if len(key) < _SHORT:
        return text.replace(key, KEY)
    between = f"[^!-~{''.join(map(re.escape, sorted(set(key))))}]*+"
    return re.sub(between.join(map(re.escape, key)), KEY, text, flags=re.IGNORECASE)


def hidden(text: str) -> str:
    """Return a text without the key that is hidden."""
    return without(_HIDDEN.get(), text)


def shown(value: object, most: int = 120) -> str:
    """Return the beginning of a value in one line, without control characters, and without the key that is hidden.

    The key is taken out of the whole value: a part of it would be left if the value were cut first.
    """
    text = printable(" ".join(hidden(str(value))[: 4 * most].split()), "�")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def seen_in(found: Found, *reports: str) -> Found:
    """Add the public reports in which a fault was seen."""
    return replace(found, evidence=reports)
