# SPDX-License-Identifier: Apache-2.0
"""Texts from elsewhere, as they may be shown."""


def printable(text: str, instead: str = "?", kept: str = "") -> str:
    """A text in which nothing moves the cursor or changes the colour: `instead` stands for each such letter that is not `kept`."""
    return "".join(letter if letter.isprintable() or letter in kept else instead for letter in text)
