# SPDX-License-Identifier: Apache-2.0
"""Texts of others in a description: nothing in them opens a section or a comment, pings a person or links an issue."""

import itertools
import re

STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Letters that move the cursor, hide what follows, or turn its direction."""
_MENTION = re.compile(r"(?<!\w)@(?=[A-Za-z0-9])", re.ASCII)
_NUMBER = re.compile(r"#(?=\d)|\b(?i:GH-)(?=\d)")
# `#` and a blank is a heading; a line of dashes or equals signs makes one of the line above; three backticks open a block.
_OPENING = re.compile(r"^(\s{0,3})(#{1,6}(?=\s|$)|-+\s*$|=+\s*$|`{3,}|~{3,})", re.MULTILINE)
_KEPT = re.compile(r"^(?:\s|[-*+>|] |\d+[.)] |[`~]{3})", re.MULTILINE)
_PARAGRAPH = re.compile(r"(\n\s*\n)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_NOTHING = "<!-- -->"


def escaped(text: str) -> str:
    """A text of several lines."""
    clean = STEERING.sub("?", text)
    opened = _OPENING.sub(r"\1\\\2", clean)
    return "".join(_paragraph(part) for part in _PARAGRAPH.split(opened))


def unwrapped(text: str) -> str:
    """A message's paragraphs on one line each: GitHub shows a line end as one. Lists, quotations and code stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if _KEPT.search(one) else " ".join(one.splitlines()) for one in paragraphs)


def cell(text: str) -> str:
    """A text as a table's cell."""
    return escaped(" ".join(text.split())).replace("|", "\\|")


def _paragraph(text: str) -> str:
    """A paragraph, its code spans as they are: they show what is in them, there is nothing to escape.

    Where a backtick has no partner on its line, or may be an escaped one, readers of Markdown and this one could find other spans:
    then nothing counts as one.
    """
    spans = [*_SPAN.finditer(text)]
    if "`" in _SPAN.sub("", text) or "\\`" in text:
        return _plain(text)
    ends = [0, *(place for one in spans for place in one.span()), len(text)]
    parts = (text[start:end] for start, end in itertools.pairwise(ends))
    return "".join(part if place % 2 else _plain(part) for place, part in enumerate(parts))


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("-->", "--&gt;")
    text = _MENTION.sub(f"@{_NOTHING}", text)
    return _NUMBER.sub(lambda found: f"{found[0]}{_NOTHING}", text)
