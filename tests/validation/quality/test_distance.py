# SPDX-License-Identifier: Apache-2.0
"""The measure on distributions with known answers, and on wrong ones."""

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.validation.quality import distance
from stack.validation.quality.distance import between, divergence
from stack.validation.quality.scores import TokenPlace

from .server import log_softmax


def likely(*shares: float) -> dict[int, float]:
    return {token: math.log(share) for token, share in enumerate(shares)}


def exact(one: Sequence[float], two: Sequence[float]) -> float:
    return math.fsum(math.exp(a) * (a - b) for a, b in zip(one, two, strict=True))


def top(values: Sequence[float], count: int) -> dict[int, float]:
    order = sorted(range(len(values)), key=lambda token: -values[token])[:count]
    return {token: values[token] for token in order}


@pytest.mark.parametrize(
    ("one", "two", "kl", "covered"),
    [
        ((0.5, 0.5), (0.5, 0.5), 0.0, 1.0),
        ((0.5, 0.5), (0.25, 0.75), 0.5 * math.log(2) + 0.5 * math.log(2 / 3), 1.0),
        ((0.5, 0.3), (0.5, 0.1), 0.3 * math.log(3) + 0.2 * math.log(0.2 / 0.4), 0.8),  # the rest is one event
    ],
)
def test_known_divergences(one: tuple[float, ...], two: tuple[float, ...], kl: float, covered: float) -> None:
    assert divergence(likely(*one), likely(*two)) == pytest.approx((kl, covered))


def test_a_token_that_one_of_both_does_not_name_is_another_token() -> None:
    kl, covered = divergence({1: math.log(0.6), 2: math.log(0.3)}, {1: math.log(0.6), 3: math.log(0.3)})
    assert (kl, covered) == pytest.approx((0.0, 0.6))


LOGITS = st.lists(st.floats(-8, 8), min_size=12, max_size=12)


@given(LOGITS, LOGITS, st.integers(1, 12))
def test_what_is_reported_is_never_more_than_the_truth(first: list[float], second: list[float], count: int) -> None:
    one, two = log_softmax(first), log_softmax(second)
    kl, covered = divergence(top(one, count), top(two, count))
    truth = exact(one, two)
    assert 0 <= kl <= truth + 1e-6
    assert 0 <= covered <= 1
    if count == 12:
        assert kl == pytest.approx(truth, abs=1e-6)


def record(seed: int, noise: float, count: int = 200) -> list[TokenPlace]:
    """Tokens drawn from distributions over 30 tokens, and what a server with that much noise in its logits says of them."""
    draw, rounding = random.Random(seed), random.Random(f"{seed} {noise}")
    found = []
    for _ in range(count):
        plain = [draw.gauss(0, 2) for _ in range(30)]
        token = draw.choices(range(30), [math.exp(value) for value in plain])[0]
        found.append(TokenPlace(token, dict(enumerate(log_softmax([value + noise * rounding.gauss(0, 1) for value in plain])))))
    return found


def test_a_server_is_no_distance_from_itself() -> None:
    found = between(record(1, 0), record(1, 0))
    assert (found.kl, found.kl_most, found.agreement, found.ratio) == (0, 0, 1, 1)
    assert found.perplexity[0] == pytest.approx(math.exp(-sum(p.likely[p.token] for p in record(1, 0)) / 200))


def test_more_noise_is_farther_and_less_in_agreement() -> None:
    found = [between(record(1, 0), record(1, noise)) for noise in (0.01, 0.1, 0.5, 2)]
    assert [one.kl for one in found] == sorted(one.kl for one in found)
    assert [one.agreement for one in found] == sorted((one.agreement for one in found), reverse=True)
    # Small noise of variance v on each logit adds v/2 to the divergence, times one minus the sum of squared probabilities.
    places = record(1, 0)
    spread = sum(1 - sum(math.exp(2 * value) for value in place.likely.values()) for place in places) / len(places)
    assert found[1].kl == pytest.approx(0.1**2 / 2 * spread, rel=0.2)
    assert found[3].low > 1 > found[0].low


def test_the_interval_of_the_ratio_has_the_ratio_in_it() -> None:
    found = between(record(2, 0), record(2, 0.3))
    assert found.low < found.ratio < found.high
    assert found.kl <= found.kl_99 <= found.kl_most


@pytest.mark.parametrize("name", distance.WRONG)
def test_wrong_servers_are_far(name: str) -> None:
    right = record(3, 0)
    wrong = between(right, distance.WRONG[name](right))
    assert wrong.kl > 10 * between(right, record(3, 0.2)).kl
    assert wrong.agreement < 0.5


def test_two_tokens_that_weigh_the_same_are_both_the_likeliest() -> None:
    tied, other = TokenPlace(0, likely(0.4, 0.4, 0.2)), TokenPlace(0, likely(0.3, 0.5, 0.2))
    assert between([tied, tied], [other, other]).agreement == 1
    assert between([tied, tied], [TokenPlace(0, likely(0.2, 0.2, 0.6))] * 2).agreement == 0
