# SPDX-License-Identifier: Apache-2.0
"""Halving what lies between good and bad, where some of it cannot be judged."""

from collections.abc import Callable
from enum import StrEnum


class Answer(StrEnum):
    """What comes of looking at one."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    """It could not be made, or cannot be judged."""


def first_bad(last: int, ask: Callable[[int], Answer], start: int | None = None) -> range:
    """Which of 1 to `last` is the first that is bad: 0 is good and `last` is bad, both are known.

    More than one where those that could have told them apart were skipped. `start` is asked first, if it lies between.
    """
    good, bad = 0, last
    skipped: set[int] = set()
    while between := [number for number in range(good + 1, bad) if number not in skipped]:
        number = start if start in between else min(between, key=lambda one: abs(2 * one - good - bad))
        start = None
        answer = ask(number)
        if answer is Answer.GOOD:
            good = number
        elif answer is Answer.BAD:
            bad = number
        else:
            skipped.add(number)
    return range(good + 1, bad + 1)
