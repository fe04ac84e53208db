# SPDX-License-Identifier: Apache-2.0
"""Whether a text repeats itself without end, as a model does whose kernels are wrong."""

import re
from collections import Counter

_UNIT = re.compile(r"(.{1,200}?)\1{3,}", re.DOTALL)
_LEAST = 60
"""Characters of repetitions that count: tables and quotations have shorter ones."""
_WORDS, _MANY = 4, 100
_DISTINCT = 0.5
"""Share of the sequences of four words that occur once or first; prose has above 0.9."""
_READ = 20_000


def loop(text: str) -> str | None:
    """What a text repeats; None where it goes on as texts do."""
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
