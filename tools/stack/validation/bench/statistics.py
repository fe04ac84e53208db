# SPDX-License-Identifier: Apache-2.0
"""Compare two sets of runs: Welch's confidence interval of the difference of two means, and outliers.

The interval is about these runs of these servers. It does not include what another start, or another machine of the same kind, would
change.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CONFIDENCE = 0.95
LEAST = 3
"""Least number of runs for which a spread is meaningful."""

_APART = 3.5
"""Robust standard deviations (1.4826 times the median absolute deviation) beyond which a run is an outlier: Iglewicz and Hoaglin."""
_NOISE = 0.005
"""Least assumed spread, as a share of the median. Without it, the best of five equal runs would be an outlier."""


class Ranking(StrEnum):
    """Result of comparing a measurement with a baseline."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours divided by theirs: the ratio of the means and its confidence interval. `why` says why they are not comparable."""

    way: Ranking
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    why: str = ""


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """List the indices of outliers; with fewer than four runs, none can be told."""
    if len(values) < LEAST + 1:
        return ()
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    limit = _APART * max(spread, _NOISE * abs(middle))
    return tuple(place for place, value in enumerate(values) if abs(value - middle) > limit)


def compare(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare runs (more is better) with a baseline's. A baseline of one number is taken as exact, since its spread is not published.

    If the result depends on outliers, the runs are not comparable.
    """
    if len(ours) < LEAST or len(theirs) in range(2, LEAST):
        return Comparison(Ranking.NOT_COMPARABLE, why=f"with fewer than {LEAST} runs the spread is unknown")
    whole = _interval(ours, theirs)
    steady = _interval(_without_outliers(ours), _without_outliers(theirs))
    if steady.way is not whole.way:
        odd = ", ".join(f"{values[place]:.4g}" for values in (ours, theirs) for place in outliers(values))
        why = f"with the outliers ({odd}) it is {whole.way}, without them {steady.way}: measure again"
        return Comparison(Ranking.NOT_COMPARABLE, whole.ratio, whole.low, whole.high, why)
    return whole


def _without_outliers(values: Sequence[float]) -> list[float]:
    outlying = outliers(values)
    return [value for place, value in enumerate(values) if place not in outlying]


def _interval(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    base = statistics.fmean(theirs)
    difference = statistics.fmean(ours) - base
    parts = [(statistics.variance(values) / len(values), len(values) - 1) for values in (ours, theirs) if len(values) > 1]
    variance = sum(part for part, _ in parts)
    # Degrees of freedom by Welch and Satterthwaite; with a single set of runs they are that set's own.
    freedom = variance**2 / sum(part**2 / degrees for part, degrees in parts) if variance else math.inf
    half = quantile(freedom) * math.sqrt(variance) if variance else 0.0
    low, high = difference - half, difference + half
    way = Ranking.BETTER if low > 0 else Ranking.WORSE if high < 0 else Ranking.SAME
    return Comparison(way, 1 + difference / base, 1 + low / base, 1 + high / base)


def quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Compute the quantile of Student's t: the share `confidence` of the distribution is between minus and plus this number.

    With t = sqrt(v) tan(a) the density becomes cos(a)^(v-1), which Simpson's rule integrates well. Bisection finds the angle.
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
