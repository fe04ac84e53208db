# SPDX-License-Identifier: Apache-2.0
"""Estimate how much faster one server is than another, with a confidence interval.

Each round starts both servers and gives one value of each: a pair. What drifts slowly, such as the machine's temperature, affects both of
a pair, and the order within a round alternates. The logarithms of the pairs' ratios are taken as independent and about normal; their
mean has Student's t interval. So the interval includes what differs between starts, unlike one over the runs of a single start.
"""

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from stack.validation.bench.statistics import CONFIDENCE, LEAST, quantile

METHOD = "Student's t interval of the mean logarithm of B / A, paired by round"


_quantile = functools.cache(quantile)
"""All results of a comparison have the same number of rounds."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The ratio B / A of two speeds, and its confidence interval."""

    ratio: float
    low: float
    high: float

    @property
    def faster(self) -> str | None:
        """Name the faster one, `A` or `B`; None if the interval holds 1."""
        return "B" if self.low > 1 else "A" if self.high < 1 else None


def order(rounds: int) -> tuple[tuple[str, str], ...]:
    """Return the order of the servers in each round: A B, B A, A B, …"""
    return tuple(("A", "B") if number % 2 == 0 else ("B", "A") for number in range(rounds))


def paired(first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the ratio of the second server's speed to the first one's, from a value of each per round.

    Raises:
        ValueError: there are fewer than three rounds, not as many values of both, or a value is not above 0.

    """
    if len(first) != len(second) or len(first) < LEAST or min(*first, *second) <= 0:
        raise ValueError(f"{len(first)} and {len(second)} speeds cannot be compared")
    logarithms = [math.log(b / a) for a, b in zip(first, second, strict=True)]
    mean, count = statistics.fmean(logarithms), len(logarithms)
    half = _quantile(count - 1, confidence) * statistics.stdev(logarithms) / math.sqrt(count)
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))
