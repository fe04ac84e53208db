# SPDX-License-Identifier: Apache-2.0
"""What the tiny model says, and what it is asked; imported on both sides, so it needs nothing but Python."""

from collections.abc import Sequence

LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")
THOUGHT = "User wants an answer"
SAID, NOTHING = "I echo", " nothing"
TOOL = "get_weather"
ARGUMENTS = '{"city":"Köln"}'
CALL = f"commentary to=functions.{TOOL} <|constrain|>json<|message|>{ARGUMENTS}<|call|>"

ASKED = "Please echo"
"""With letters behind it, a message to which the answer is known."""
TEXT = """\
A fork is easy to begin and hard to keep. Every week upstream moves a file, renames a flag or rewrites the kernel that you
have just understood, and nobody will tell you. What you carry should therefore be small, have a name, say why it is there,
and fail loudly on the day when it is no longer needed. Numbers deserve the same distrust: 0.1 of a value that is 0.07 at
most says nothing at all, a table without its versions proves nothing, and a server that answers 200 to a question about its
health may still die of the first real one. So we ask real questions, 1, 2, 4, 8 and 33 at a time, and compare every answer
with one that was computed slowly, by other people's code, on the very same weights. (And then we break those weights on
purpose, in sixteen ways, and look whether anybody notices.)
"""
"""What is scored token by token: longer than the sliding window, so that its edge shows, and varied, for every expert's sake."""


def thought() -> str:
    """How an answer begins: it thinks."""
    return f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"


def content(letters: Sequence[str]) -> str:
    """What it answers when it is asked to echo letters."""
    return SAID + ("".join(f" {letter}" for letter in letters) if letters else NOTHING)


def echo(letters: Sequence[str]) -> str:
    """All that it says then, with control tokens."""
    return f"{thought()}<|channel|>final<|message|>{content(letters)}<|return|>"


def call() -> str:
    """All that it says when it has tools."""
    return f"{thought()}<|channel|>{CALL}"
