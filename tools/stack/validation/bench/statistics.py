# SPDX-License-Identifier: Apache-2.0
"""Comparing two sets of runs: Welch's confidence interval of the difference of two means, and which runs stand apart.

The interval speaks of these runs of these servers: what another start or another machine of the same kind would change is
not in it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CONFIDENCE = 0.95
LEAST = 3
"""Runs below which a spread says nothing."""

_APART = 3.5
"""Robust standard deviations (1.4826 times the median absolute deviation) beyond which a run stands apart: Iglewicz and Hoaglin."""
_NOISE = 0.005
"""The least spread that is assumed, as a share of the median: else the best of five equal runs would stand apart."""


class Way(StrEnum):
    """How a measurement stands to a baseline."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours by theirs: the ratio of the means, and between which ratios the true one lies; `why` where it says nothing."""

    way: Way
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """The places of runs that stand apart from the rest; of fewer than four, none can be told."""
    if len(values) < LEAST + 1:
        return ()
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    limit = _APART * max(spread, _NOISE * abs(middle))
    return tuple(place for place, value in enumerate(values) if abs(value - middle) > limit)


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare runs (more is better) with a baseline's; a baseline of one number is taken as exact: nobody published its spread.

    Where it depends on runs that stand apart whether ours is better, nothing is said.
    """
    if len(ours) < LEAST or len(theirs) in range(2, LEAST):
        return Comparison(Way.NOT_COMPARABLE, why=f"fewer than {LEAST} runs have no spread")
    found = _interval(ours, theirs)
    steady = _interval(_without_outliers(ours), _without_outliers(theirs))
    if steady.way is not found.way:
        odd = ", ".join(f"{values[place]:.4g}" for values in (ours, theirs) for place in outliers(values))
        why = f"with the runs that stand apart ({odd}) it is {found.way}, without them {steady.way}: measure again"
        return Comparison(Way.NOT_COMPARABLE, found.ratio, found.low, found.high, why)
    return found


def _without_outliers(values: Sequence[float]) -> list[float]:
    apart = outliers(values)
    return [value for place, value in enumerate(values) if place not in apart]


def _interval(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    base = statistics.fmean(theirs)
    difference = statistics.fmean(ours) - base
    parts = [(statistics.variance(values) / len(values), len(values) - 1) for values in (ours, theirs) if len(values) > 1]
    variance = sum(part for part, _ in parts)
    # Welch and Satterthwaite's degrees of freedom; with a single set of runs they are its own.
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts) if variance else math.inf
    half = quantile(freedom) * math.sqrt(variance) if variance else 0.0
    low, high = difference - half, difference + half
    way = Way.BETTER if low > 0 else Way.WORSE if high < 0 else Way.SAME
    return Comparison(way, 1 + difference / base, 1 + low / base, 1 + high / base)


def quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Student's t: between minus and plus this number lies the share `confidence` of the distribution.

    With t = sqrt(v) tan(a) the density becomes cos(a)^(v-1), which Simpson's rule integrates well; the rest is bisection.
    """
    scale = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)

    def share(angle: float, panels: int = 100) -> float:
        step = angle / panels
        weights = (1 if place in (0, panels) else 4 if place % 2 else 2 for place in range(panels + 1))
        heights = (weight * math.cos(place * step) ** (freedom - 1) for place, weight in enumerate(weights))
        return float(scale * step / 3 * sum(heights))

    low, high = 0.0, math.pi / 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if share(middle) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)
