# SPDX-License-Identifier: Apache-2.0
"""Outputs of gpt-oss by chance: well-formed ones, well-formed ones with edits, and random tokens. A seed gives the same ones again."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import harmony_vocabulary as vocabulary

WORDS = [
    *("Hello", " there", ", what", " a day", "\n", "\n\n", "{", '"', "東京", " \u2013 ", "Zürich", " 1", "🧿", "\u3000"),
    *("to=functions.f", " final", "analysis", " to", "=", " json", "functions", ".f", "assistant", "user", " f"),
]
CONTROL = ["<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>", "<|constrain|>", "<|endoftext|>"]
PIECES = [
    *("assistant", "analysis", "commentary", "final", " to=functions.f", " to=f", " json", " code", " to=mcp", " to=user"),
    *(
        " to=python",
        " to=assistant",
        "functions.f",
        " to=functions.",
        "thought",
        "user",
        " to=browser.search",
        " <|constrain|>json",
    ),
]
CALLS = [
    "<|start|>assistant<|channel|>commentary to={name} <|constrain|>json",
    "<|start|>assistant<|channel|>commentary to={name} json",
    "<|start|>assistant<|channel|>commentary to={name}",
    "<|start|>assistant<|channel|>analysis to={name}",
    "<|start|>assistant to={name}<|channel|>commentary json",
    "<|start|>assistant to={name}<|channel|>commentary <|constrain|>json",
]
RECIPIENTS = ["functions.f", "functions.get-time.v2", "f", "get-time.v2"]
KINDS = ("valid", "edited", "random")


@dataclass(frozen=True, slots=True)
class Sequence:
    """One output, whether its request declares tools, and the sizes of a stream's chunks."""

    kind: str
    tokens: tuple[int, ...]
    tools: bool
    sizes: tuple[int, ...]

    @property
    def text(self) -> str:
        """The text of the tokens."""
        return vocabulary.decode(self.tokens)


def sequence(number: int) -> Sequence:
    """Make the sequence of a number."""
    dice = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    tokens = _random(dice) if kind == "random" else _valid(dice)
    if kind == "edited":
        for _ in range(dice.choice((1, 1, 2, 3))):
            tokens = _edited(dice, tokens)
    if dice.random() < 0.3:
        tokens = tokens[: dice.randrange(1, len(tokens) + 1)] if tokens else tokens
    sizes = tuple(dice.choice((1, 1, 2, 3, 5, 9)) for _ in tokens) or (1,)
    return Sequence(kind, tuple(tokens), dice.random() < 0.6, sizes)


def _valid(dice: random.Random) -> list[int]:
    text = "".join(_message(dice) for _ in range(dice.randrange(1, 5))).removeprefix("<|start|>assistant")
    return vocabulary.encode(text)


def _message(dice: random.Random) -> str:
    kind = dice.choice(("analysis", "commentary", "final", "call"))
    if kind == "call":
        arguments = json.dumps({"a": "".join(dice.choices(WORDS, k=dice.randrange(4)))}, ensure_ascii=dice.random() < 0.5)
        header = dice.choice(CALLS).format(name=dice.choice(RECIPIENTS))
        return f"{header}<|message|>{arguments if dice.random() < 0.9 else ''}<|call|>"
    text = "".join(dice.choices(WORDS, k=dice.randrange(6)))
    return f"<|start|>assistant<|channel|>{kind}<|message|>{text}<|end|>"


def _edited(dice: random.Random, tokens: list[int]) -> list[int]:
    at = dice.randrange(len(tokens) + 1)
    piece = vocabulary.encode(dice.choice(CONTROL + PIECES))
    match dice.choice(("insert", "insert", "delete", "replace", "repeat", "header")):
        case "insert":
            return [*tokens[:at], *piece, *tokens[at:]]
        case "delete":
            return [*tokens[:at], *tokens[at + 1 :]]
        case "replace":
            return [*tokens[:at], *piece, *tokens[at + 1 :]]
        case "repeat":
            return [*tokens[: at + 1], *tokens[at:]]
    # Into a header, where most mistakes are reported
    control = vocabulary.encode("<|channel|>") + vocabulary.encode("<|message|>")
    places = [place for place, token in enumerate(tokens) if token in control] or [0]
    at = dice.choice(places) + dice.choice((0, 1))
    return [*tokens[:at], *piece, *tokens[at:]]


def _random(dice: random.Random) -> list[int]:
    pool = CONTROL * 2 + PIECES + WORDS
    return vocabulary.encode("".join(dice.choices(pool, k=dice.randrange(1, 16))))
