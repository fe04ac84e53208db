# SPDX-License-Identifier: Apache-2.0
"""Show parts of a server's answers, and words that several questions share."""

from dataclasses import replace

from stack.base.text import printable
from stack.doctor.finding import Found

SEE_LOG = "see the server's log: stack doctor --log FILE"


def shown(value: object, most: int = 120) -> str:
    """Return the beginning of a value in one line, without control characters."""
    text = printable(" ".join(str(value)[: 4 * most].split()), "�")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def seen_in(found: Found, *reports: str) -> Found:
    """Add the public reports in which a fault was seen."""
    return replace(found, evidence=reports)
