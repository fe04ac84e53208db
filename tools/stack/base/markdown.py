# SPDX-License-Identifier: Apache-2.0
"""Write foreign text into Markdown, so that no renderer sees markup, a link, a mention or a reference to an issue in it."""

import re
from collections.abc import Sequence

from stack.base.text import printable

_HARMLESS = re.compile(r"[A-Za-z](?:[A-Za-z0-9 .,()/-]|: )*")


def code(text: str) -> str:
    """Return foreign text as a code span that also a table can hold; the two characters that would end it are replaced."""
    plain = printable(" ".join(text.split())).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain else ""


def words(text: str) -> str:
    """Return text as it is if no renderer of Markdown could see markup, a link or a mention in it; otherwise as a code span."""
    harmless = _HARMLESS.fullmatch(text) and "www." not in text.lower() and text == text.strip()
    return text if harmless else code(text)


def table_row(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(cells)} |"
