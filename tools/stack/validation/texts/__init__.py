# SPDX-License-Identifier: Apache-2.0
"""Texts for measuring servers, written for this project so that it can distribute them."""

import random
import re

from stack.deploy.data import DATA

ALMANAC = DATA / "texts/almanac.txt"
"""Prose, numbers, dialogue and a little code; about 1500 tokens."""

_BOOK = 12_000
"""Number of sentences: enough that no two prompts begin alike and hit a server's prefix cache."""


def book() -> str:
    """Return the almanac's sentences in a fixed random order, as long as a novel, for prompts of any length."""

    sentences = re.split(r"(?<=[.!?])\s+", ALMANAC.read_text(encoding="utf-8").replace("\n", " "))
    return " ".join(random.Random(1).choices(sentences, k=_BOOK))  # noqa: S311 (an order, not a secret)
