# SPDX-License-Identifier: Apache-2.0
"""Bisect between good and bad when some candidates cannot be judged."""

from collections.abc import Callable
from enum import StrEnum


class Answer(StrEnum):
    """The result of testing one candidate."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    """The candidate could not be made, or cannot be judged."""


def first_bad(last: int, ask: Callable[[int], Answer], start: int | None = None) -> range:
    """Find the first bad one of 1 to `last`; 0 is known to be good, `last` to be bad.

    The result has several candidates if those that would separate them were skipped. `start` is tested first if it lies
    between.
    """
    good, bad = 0, last
    skipped: set[int] = set()
    while between := [number for number in range(good + 1, bad) if number not in skipped]:
        number = start if start in between else min(between, key=lambda candidate: abs(2 * candidate - good - bad))
        start = None
        answer = ask(number)
        if answer is Answer.GOOD:
            good = number
        elif answer is Answer.BAD:
            bad = number
        else:
            skipped.add(number)
    return range(good + 1, bad + 1)
