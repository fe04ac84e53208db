# SPDX-License-Identifier: Apache-2.0
"""The texts that servers are measured with: written for this project, so that they can travel with it."""

import random
import re

from stack.deploy.data import DATA

ALMANAC = DATA / "texts/almanac.txt"
"""Prose, numbers, dialogue and a little code; about 1500 tokens."""

_BOOK = 12_000
"""Sentences of a book: long enough that no two prompts begin alike and hit a server's prefix cache."""


def book() -> str:
    """The almanac's sentences in a random order that is always the same, as long as a novel: for prompts of any length."""
    sentences = re.split(r"(?<=[.!?])\s+", ALMANAC.read_text(encoding="utf-8").replace("\n", " "))
    return " ".join(random.Random(1).choices(sentences, k=_BOOK))  # noqa: S311 (an order, not a secret)
