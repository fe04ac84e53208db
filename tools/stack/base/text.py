# SPDX-License-Identifier: Apache-2.0
"""Texts from elsewhere, as they may be shown."""


def printable(text: str, instead: str = "?", kept: str = "") -> str:
    """A text in which nothing moves the cursor or changes the colour: `instead` stands for each such letter that is not `kept`."""
    return "".join(letter if letter.isprintable() or letter in kept else instead for letter in text)


def shortened(text: str, most: int) -> str:
    """A text of at most so many letters, from 5 on: of a longer one its beginning and as much of its end, where errors have causes."""
    if len(text) <= most:
        return text
    first = (most - 3) // 2
    return f"{text[:first]} … {text[len(text) - (most - first - 3) :]}"
