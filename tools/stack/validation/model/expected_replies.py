# SPDX-License-Identifier: Apache-2.0
"""Requests to the tiny model and its replies. The model and the checks both import this, so it needs only Python."""

from collections.abc import Sequence

LETTERS = tuple("bcdefghijklmnopqrstuvwxyz")
"""Letters that it can echo; without "a", since every system message contains " a"."""
THOUGHT = "User wants an answer"
SAID, NOTHING = "I echo", " nothing"
TOOL = "get_weather"
ARGUMENTS = '{"city":"Köln"}'
CALL = f"commentary to=functions.{TOOL} <|constrain|>json<|message|>{ARGUMENTS}<|call|>"

ASKED = "Please echo"
"""With letters after it, a message whose answer is known."""
TEXT = """\
Forks are easily begun and hard work ever after. Every week upstream moves some file, renames some flag or rewrites the kernel
which you have just understood, and nobody will tell you. What you carry should therefore be small, have its own name, say why
it exists, and fail loudly on the day when nobody needs it. Numbers deserve the same distrust: a tenth of some value that
never grows so large says very little, tables without their versions prove even less, and servers who feel well whenever somebody asks
for their health may still die of the first real one. So we ask real questions, one by one, then dozens together, and compare each reply
with one computed slowly, by other people's code, on the very same weights. (Then we break those weights on purpose, in
sixteen ways, and look whether anybody notices.)
"""
"""The text that is scored token by token. It is longer than the sliding window, so that its edge matters, and reaches every expert.

It contains no word that the model knows by heart: probabilities near 1 round badly in BF16.
"""


def thought() -> str:
    """Return the beginning of every answer, the reasoning."""
    return f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"


def content(letters: Sequence[str]) -> str:
    """Return the answer's content for a request to echo letters."""
    return SAID + ("".join(f" {letter}" for letter in letters) if letters else NOTHING)


def echo(letters: Sequence[str]) -> str:
    """Return the whole output for a request to echo letters, with control tokens."""
    return f"{thought()}<|channel|>final<|message|>{content(letters)}<|return|>"


def call() -> str:
    """Return the whole output for a request with tools."""
    return f"{thought()}<|channel|>{CALL}"
