# SPDX-License-Identifier: Apache-2.0
import random

import pytest

from stack.validation.bench.statistics import Ranking, compare, outliers, quantile


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (5, 2.5706), (8, 2.3060), (30, 2.0423)])
def test_quantiles_are_those_of_the_tables(freedom: float, t: float) -> None:
    assert quantile(freedom) == pytest.approx(t, abs=1e-3)


OURS = (60.1, 59.9, 60.0, 60.2, 59.8)


@pytest.mark.parametrize(
    ("theirs", "way"),
    [
        (OURS, Ranking.SAME),
        ((60.2, 60.0, 59.9, 60.1, 60.3), Ranking.SAME),
        ((58.9, 59.1, 59.0, 59.0, 59.2), Ranking.BETTER),
        ((61.0, 61.2, 60.9, 61.1, 61.0), Ranking.WORSE),
        ((60.05,), Ranking.SAME),
        ((59.0,), Ranking.BETTER),
        ((62.4,), Ranking.WORSE),
        ((55.0, 65.0, 70.0), Ranking.SAME),  # so wide a spread says little, and the interval shows it
        ((60.0, 61.0), Ranking.NOT_COMPARABLE),
    ],
)
def test_ways(theirs: tuple[float, ...], way: Ranking) -> None:
    assert compare(OURS, theirs).way is way


def test_the_interval_is_welchs() -> None:
    """Worked by hand: means 60 and 58, variances 0.025 and 4; t of 4.05 degrees of freedom is 2.766."""
    found = compare(OURS, (56.0, 57.0, 58.0, 61.0, 58.0))
    part = 0.025 / 5, 3.5 / 5
    half = quantile(sum(part) ** 2 / (part[0] ** 2 / 4 + part[1] ** 2 / 4)) * sum(part) ** 0.5
    assert (found.ratio, found.low, found.high) == pytest.approx((60 / 58, (60 - half) / 58, (60 + half) / 58))


def test_few_runs_say_nothing() -> None:
    found = compare(OURS[:2], OURS)
    assert (found.way, found.why) == (Ranking.NOT_COMPARABLE, "with fewer than 3 runs the spread is unknown")


def test_runs_that_stand_apart_are_named() -> None:
    assert outliers((60.0, 60.1, 31.0, 60.0, 59.9)) == (2,)
    assert outliers((60.0, 60.0, 60.0, 60.0, 60.1)) == ()  # a hair's breadth
    assert outliers((50.0, 60.0, 70.0, 55.0, 65.0)) == ()
    assert outliers((60.0, 31.0, 60.0)) == ()


def test_nothing_is_said_that_depends_on_runs_that_stand_apart() -> None:
    """A mean of 58 +- 18 must not pass for the same as 60."""
    found = compare((50.0, 50.1, 50.0, 49.9, 90.0), OURS)
    assert found.way is Ranking.NOT_COMPARABLE
    assert found.why == "with the outliers (90) it is same, without them worse: measure again"
    assert compare((60.0, 60.1, 31.0, 60.0, 59.9), OURS).way is Ranking.SAME


def test_the_same_machine_is_called_the_same_about_as_often_as_promised() -> None:
    """What a 95 % interval promises, seen on 400 pairs of five runs drawn from one distribution."""
    draw = random.Random(5)
    ways = [compare(*([draw.gauss(60, 1) for _ in range(5)] for _ in range(2))).way for _ in range(400)]
    assert 0.92 < sum(way in (Ranking.SAME, Ranking.NOT_COMPARABLE) for way in ways) / len(ways) < 0.99
