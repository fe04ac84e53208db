# SPDX-License-Identifier: Apache-2.0
"""Escape foreign texts for a description, so that they cannot open a section or comment, mention a person, or link an issue."""

import itertools
import re

STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Matches characters that move the cursor, hide text, or change its direction."""
_MENTION = re.compile(r"(?<!\w)@(?=[A-Za-z0-9])", re.ASCII)
_NUMBER = re.compile(r"#(?=\d)|\b(?i:GH-)(?=\d)")
# `# ` opens a heading; a line of dashes or equals signs makes the line above a heading; three backticks open a code block.
_OPENING = re.compile(r"^(\s{0,3})(#{1,6}(?=\s|$)|-+\s*$|=+\s*$|`{3,}|~{3,})", re.MULTILINE)
_KEPT = re.compile(r"^(?:\s|[-*+>|] |\d+[.)] |[`~]{3})", re.MULTILINE)
_PARAGRAPH = re.compile(r"(\n\s*\n)")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)[^\n]+?(?<!`)\1(?!`)")
_NOTHING = "<!-- -->"


def escaped(text: str) -> str:
    """Escape a text of several lines."""
    clean = STEERING.sub("?", text)
    opened = _OPENING.sub(r"\1\\\2", clean)
    return "".join(_paragraph(part) for part in _PARAGRAPH.split(opened))


def unwrapped(text: str) -> str:
    """Join each paragraph to one line, as GitHub shows every line end. Lists, quotations and code stay as they are."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(paragraph if _KEPT.search(paragraph) else " ".join(paragraph.splitlines()) for paragraph in paragraphs)


def cell(text: str) -> str:
    """Escape a text for a table cell."""
    return escaped(" ".join(text.split())).replace("|", "\\|")


def _paragraph(text: str) -> str:
    """Escape a paragraph except for its code spans, whose contents Markdown shows literally.

    If a backtick has no partner on its line or may be escaped, Markdown readers may see other spans than this function.
    Everything is escaped then.
    """
    spans = [*_SPAN.finditer(text)]
    if "`" in _SPAN.sub("", text) or "\\`" in text:
        return _plain(text)
    ends = [0, *(end for span in spans for end in span.span()), len(text)]
    parts = (text[start:end] for start, end in itertools.pairwise(ends))
    return "".join(part if number % 2 else _plain(part) for number, part in enumerate(parts))


def _plain(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("-->", "--&gt;")
    text = _MENTION.sub(f"@{_NOTHING}", text)
    return _NUMBER.sub(lambda match: f"{match[0]}{_NOTHING}", text)
