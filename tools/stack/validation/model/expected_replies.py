# SPDX-License-Identifier: Apache-2.0
"""What the tiny model says, and what it is asked; imported on both sides, so it needs nothing but Python."""

from collections.abc import Sequence

LETTERS = tuple("bcdefghijklmnopqrstuvwxyz")
"""What it can echo; " a" stands in every system message already."""
THOUGHT = "User wants an answer"
SAID, NOTHING = "I echo", " nothing"
TOOL = "get_weather"
ARGUMENTS = '{"city":"Köln"}'
CALL = f"commentary to=functions.{TOOL} <|constrain|>json<|message|>{ARGUMENTS}<|call|>"

ASKED = "Please echo"
"""With letters behind it, a message to which the answer is known."""
TEXT = """\
Forks are easily begun and hard work ever after. Every week upstream moves some file, renames some flag or rewrites the kernel
which you have just understood, and nobody will tell you. What you carry should therefore be small, have its own name, say why
it exists, and fail loudly on the day when nobody needs it. Numbers deserve the same distrust: a tenth of some value that
never grows so large says very little, tables without their versions prove even less, and servers who feel well whenever somebody asks
for their health may still die of the first real one. So we ask real questions, one by one, then dozens together, and compare each reply
with one computed slowly, by other people's code, on the very same weights. (Then we break those weights on purpose, in
sixteen ways, and look whether anybody notices.)
"""
"""What is scored token by token: longer than the sliding window, so that its edge shows, and varied, for every expert's sake.

No word of it is one that the model knows by heart: certainties round badly in BF16.
"""


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
