# SPDX-License-Identifier: Apache-2.0
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.serving.comparison import estimate

SPEEDS = st.lists(st.floats(1, 1000), min_size=3, max_size=12)


def test_order() -> None:
    assert estimate.order(4) == (("A", "B"), ("B", "A"), ("A", "B"), ("B", "A"))


def test_by_hand() -> None:
    """Ratios 2, 2.2, 2: logarithms 0.6931, 0.7885, 0.6931; t of two degrees of freedom at 95 % is 4.3027."""
    found = estimate.paired((10, 10, 20), (20, 22, 40))
    logarithms = [math.log(2), math.log(2.2), math.log(2)]
    mean, half = statistics.fmean(logarithms), 4.302653 * statistics.stdev(logarithms) / math.sqrt(3)
    assert found.ratio == pytest.approx(2 * 1.1 ** (1 / 3))
    assert (found.low, found.high) == (pytest.approx(math.exp(mean - half)), pytest.approx(math.exp(mean + half)))
    assert found.faster == "B"
    assert estimate.paired((20, 22, 40), (10, 10, 20)).faster == "A"


def test_an_interval_that_holds_1_shows_nothing() -> None:
    assert estimate.paired((100, 100, 100), (104, 97, 102)).faster is None
    # A change of both from round to round does not hide a difference.
    drifting = (100, 80, 60, 40)
    assert (
        estimate.paired(
            drifting, [speed * ratio for speed, ratio in zip(drifting, (1.05, 1.06, 1.05, 1.04), strict=True)]
        ).faster
        == "B"
    )
    assert estimate.paired((100, 100, 100), (100, 100, 100)).faster is None


@given(SPEEDS, st.floats(0.5, 2))
def test_scale_and_order_of_the_servers(speeds: list[float], factor: float) -> None:
    other = [speed * factor * (1 + place % 3 / 100) for place, speed in enumerate(speeds)]
    there, back = estimate.paired(speeds, other), estimate.paired(other, speeds)
    assert there.low <= there.ratio <= there.high
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.low * back.high == pytest.approx(1)
    doubled = estimate.paired(speeds, [2 * speed for speed in other])
    assert doubled.ratio == pytest.approx(2 * there.ratio)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """400 comparisons of servers that differ by 3 %, with 2 % of noise and a machine that slows down."""
    draw = random.Random(7)
    held = 0
    for _ in range(400):
        drift = [1 - 0.03 * number for number in range(5)]
        first = [100 * slow * draw.lognormvariate(0, 0.02) for slow in drift]
        second = [103 * slow * draw.lognormvariate(0, 0.02) for slow in drift]
        found = estimate.paired(first, second)
        held += found.low <= 1.03 <= found.high
    assert 0.92 <= held / 400 <= 0.98


@pytest.mark.parametrize(("first", "second"), [((1, 2), (1, 2)), ((1, 2, 3), (1, 2)), ((1, 2, 0), (1, 2, 3)), ((), ())])
def test_what_cannot_be_compared(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"cannot be compared|empty"):
        estimate.paired(first, second)
