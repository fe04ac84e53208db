# SPDX-License-Identifier: Apache-2.0
"""Detect a text that repeats itself without end, as a model with wrong kernels does."""

import re
from collections import Counter

_UNIT = re.compile(r"(.{1,200}?)\1{3,}", re.DOTALL)
_LEAST = 60
"""Least length of repetitions; tables and quotations have shorter ones."""
_WORDS, _MANY = 4, 100
_DISTINCT = 0.5
"""Least share of different sequences of four words; prose has above 0.9."""
_READ = 20_000


def loop(text: str) -> str | None:
    """Return the repeated part of a text; None if it does not repeat itself."""
    text = text[:_READ]
    for found in _UNIT.finditer(text):
        unit = found[1].strip()
        if len(found[0]) >= _LEAST and len({letter for letter in unit if letter.isalnum()}) > 1:
            return unit
    words = text.split()
    if len(words) < _MANY:
        return None
    sequences = [tuple(words[place : place + _WORDS]) for place in range(len(words) - _WORDS + 1)]
    if len(set(sequences)) / len(sequences) >= _DISTINCT:
        return None
    return " ".join(Counter(sequences).most_common(1)[0][0])
