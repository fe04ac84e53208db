# SPDX-License-Identifier: Apache-2.0
"""Make foreign text safe and short enough to show."""


def printable(text: str, instead: str = "?", kept: str = "") -> str:
    """Replace every unprintable character, such as a terminal's control codes, by `instead`; keep those in `kept`."""
    return "".join(letter if letter.isprintable() or letter in kept else instead for letter in text)


def shortened(text: str, most: int) -> str:
    """Shorten text to at most `most` (5 or more) characters, keeping both ends: errors often name their cause at the end."""
    if len(text) <= most:
        return text
    first = (most - 3) // 2
    return f"{text[:first]} … {text[len(text) - (most - first - 3) :]}"
