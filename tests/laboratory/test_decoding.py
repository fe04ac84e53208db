# SPDX-License-Identifier: Apache-2.0
"""What is said of times: bytes by hand, routes that are uniform, goals that are met and missed, and what was not measured."""

from dataclasses import replace

import numpy as np
import pytest

from laboratory.decoding import figures
from laboratory.decoding.figures import OURS, Goal, Row
from stack.validation.decode_goals import LM_HEAD, MOE, QKV_O, SATURATED, SHARE

COPY = 4e12


def row(part: str, kernel: str, tokens: int, us: float, read: int = 40_000_000) -> Row:
    """Ten layers of which each takes so long."""
    return Row(part, kernel, tokens, 10, 10 * read, tuple(us * each * 1e-5 for each in (0.9, 1.0, 1.0, 1.0, 1.3)))


def test_bytes_are_those_of_gpt_oss_120b() -> None:
    # An expert: 24,883,200 elements of 4 bits, a byte for 32 of them, 8640 biases.
    assert figures.expert() == 24_883_200 // 2 + 24_883_200 // 32 + 2 * 8640
    assert figures.matrix(10, 64, four_bits=False) == 1280 + 20
    assert figures.matrix(201_088, 2880, bias=False) == 201_088 * 90 * 17
    total = figures.token()
    assert sum(total.values()) == pytest.approx(2.72e9, rel=0.01)
    assert figures.token(18)[MOE] * 2 == total[MOE]


def test_routes_are_uniform_and_the_same_by_a_seed() -> None:
    one, same, other = (figures.routes(seed, 16, 4) for seed in (7, 7, 8))
    assert np.array_equal(one.ids, same.ids)
    assert not np.array_equal(one.ids, other.ids)
    assert (one.logits.shape, one.ids.shape, one.weights.shape) == ((16, 4, 128), (16, 4, 4), (16, 4, 4))
    np.testing.assert_allclose(one.weights.sum(axis=2), 1, rtol=1e-6)
    # Of 128 experts, 4 by each of 4 tokens: 128 (1 - (31/32)^4) = 15.26 on average.
    assert figures.routes(7, 500, 4).touched / 500 == pytest.approx(128 * (1 - (31 / 32) ** 4), rel=0.01)
    counts = np.bincount(figures.routes(7, 2000, 4).ids.ravel(), minlength=128)
    assert counts.sum() == 32_000
    assert ((counts - 250) ** 2 / 250).sum() < 200  # chi-squared of 127 degrees of freedom: 1 in 20,000 is beyond


def test_touched_are_counted_in_each_layer() -> None:
    ids = np.array([[[0, 1], [1, 2]], [[0, 1], [0, 1]]], np.int32)
    assert figures.Routes(np.zeros((2, 2, 4), np.float32), ids, np.zeros((2, 2, 2), np.float32)).touched == 5


def test_every_expert_is_chosen_once_in_each_layer() -> None:
    ids = figures.every_expert(3)
    assert ids.shape == (3, 16, 8)
    assert all(sorted(layer.ravel()) == list(range(128)) for layer in ids)
    assert not np.array_equal(ids[0], ids[1])


def test_a_row_is_the_median_of_a_layer() -> None:
    one = Row(MOE, OURS, 1, 4, 4 * 10**6, (4e-3, 1.0, 4e-3, 2e-3, 5e-3))
    assert one.seconds == pytest.approx(1e-3)
    assert one.rate == pytest.approx(1e9)
    assert replace(one, times=(1e-3, 2e-3, 3e-3, 4e-3, 5e-3)).spread == pytest.approx(1.0)
    assert replace(one, times=(1e-3,)).spread == 0


def rows(ours: float = 10.0) -> list[Row]:
    """Everything measured: ours takes 10 us where all that is asked for is just met."""
    found = [row(SATURATED, OURS, 16, 10 / 0.85), row(LM_HEAD, OURS, 1, 10 / 0.85)]
    for tokens in (1, 2, 4, 8, 16):
        others = {"marlin": 16.0, "triton": 17.0, "flashinfer-sm90": 10.0} if tokens < 16 else {"marlin": 10.0, "triton": 30.0}
        found += [row(MOE, OURS, tokens, ours), *(row(MOE, name, tokens, us) for name, us in others.items())]
        others = {"marlin": 20.0, "cublas-bf16": 18.0} if tokens < 16 else {"marlin": 10.0, "cublas-bf16": 10.0}
        found += [row(QKV_O, OURS, tokens, ours), *(row(QKV_O, name, tokens, us) for name, us in others.items())]
    return found


def test_every_goal_is_met_when_it_is_just_reached_and_missed_when_it_is_not() -> None:
    assert len(list(figures.goals(rows(), COPY))) == 24
    assert [str(goal) for goal in figures.goals(rows(9.99), COPY * 0.999) if not goal.met] == []
    late = list(figures.goals(rows(10.2), COPY))
    assert {goal.name for goal in late if goal.met is False} >= {
        "MoE, M = 1, times as fast as marlin",
        "MoE, M = 8, times as fast as flashinfer-sm90",
        "qkv + o, M = 4, times as fast as cublas-bf16",
        "moe, M = 16, times as fast as the better of marlin and triton",
    }
    shares = [goal for goal in figures.goals(rows(), COPY * 1.01) if goal.least == SHARE]
    assert [goal.met for goal in shares] == [False, False]


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    assert {goal.met for goal in figures.goals([], COPY)} == {None}
    absent = [replace(one, times=(), why="vllm is not installed") if one.kernel == "marlin" else one for one in rows()]
    by_name = {goal.name: goal for goal in figures.goals(absent, COPY)}
    assert by_name["MoE, M = 1, times as fast as marlin"].met is None
    assert by_name["MoE, M = 1, times as fast as triton"].met is True
    # One of two others is not the better of both.
    assert by_name["moe, M = 16, times as fast as the better of marlin and triton"].met is None
    assert str(Goal("some", None, 1.6)).split() == ["not", "measured", "some", "of", "1.60"]
    assert str(Goal("some", 1.5, 1.6)).startswith("missed ")


def test_no_goal_is_judged_by_what_may_come_from_the_cache() -> None:
    few = [replace(one, layers=9, read=9 * 40_000_000) for one in rows()]
    assert {goal.met for goal in figures.goals(few, COPY)} == {None}


def test_a_graph_whose_steps_have_other_bits_than_alone_is_wrong() -> None:
    alone = [np.arange(12, dtype=np.int16).reshape(3, 4) + layer for layer in range(3)]
    assert figures.changed(alone, [one.copy() for one in alone]) == ""
    other = [one.copy() for one in alone]
    other[1][2, 3] ^= 1
    assert figures.changed(alone, other) == (
        "wrong: 1 of 3 steps of the graph, the first is 1, have other bits than when run alone"
    )
    with pytest.raises(ValueError, match="shorter"):
        figures.changed(alone, other[:2])


def test_the_switch_is_where_another_kernel_is_faster_first() -> None:
    timed = [row(MOE, OURS, tokens, 10) for tokens in (1, 8, 16)]
    timed += [row(MOE, "marlin", tokens, us) for tokens, us in ((1, 20), (8, 11), (16, 9), (32, 9))]
    timed += [row(MOE, "ours, padded", 1, 5), row(QKV_O, "marlin", 1, 1)]
    assert figures.switch(timed, MOE) == (16, "marlin")
    assert figures.switched(timed, MOE) == "marlin is faster from M = 16 on"
    assert figures.switch(timed[:3], MOE) is None
    assert figures.switched(timed[:3], MOE) == "nothing was measured beside ours"
    # Where ours was not measured, nothing is said of it.
    assert figures.switched([*timed[:5], timed[6]], MOE) == "ours is as fast as marlin at every M measured, up to M = 8"
    assert figures.switched([*timed[:3], timed[6]], MOE) == "nothing was measured beside ours"


def test_a_spark_is_predicted_from_bytes_and_shares() -> None:
    half = [row(part, OURS, tokens, 20) for part, tokens in ((SATURATED, 16), (QKV_O, 1), (LM_HEAD, 1))]
    assert figures.prediction(half, COPY) is None
    found = figures.prediction([*half, row(MOE, OURS, 1, 40)], COPY)
    assert found is not None
    total, experts = sum(figures.token().values()), figures.token()[MOE]
    assert found[0] == pytest.approx(1e3 * total / (0.5 * 273e9))
    assert found[1] - found[0] == pytest.approx(1e3 * experts / 273e9 * 2)
    said = figures.predicted([*half, row(MOE, OURS, 1, 40)], COPY)
    assert said.startswith(f"prediction, not measured: a Spark reads a token's weights in {found[0]:.1f} ms")
    # A share of a copy is no share of a data sheet.
    assert said.endswith("were a copy there to reach all of the data sheet's 273 GB/s; a copy here reaches 4000 GB/s")
    assert figures.predicted(half, COPY) == ""


def test_the_table_has_times_shares_ratios_and_reasons() -> None:
    some = [
        replace(row(MOE, OURS, 1, 10), touched=4.0),
        replace(row(MOE, "marlin", 1, 25), touched=4.0),
        Row(MOE, "triton", 1, 1, 0, why="vllm is not installed"),
    ]
    head, *lines = figures.table(some, COPY)
    assert head == "moe, M = 1, 4.0 experts a layer, 40.0 MB each"
    assert [line.split() for line in lines] == [
        ["ours", "10.00", "us", "100.0", "%", "+-20.0", "%"],
        ["marlin", "25.00", "us", "40.0", "%", "+-20.0", "%", "2.50", "x", "ours"],
        ["triton", "vllm", "is", "not", "installed"],
    ]


def test_as_json_a_row_without_times_has_no_numbers() -> None:
    assert figures.as_json(row(MOE, OURS, 1, 10))["us"] == pytest.approx(10)
    absent = figures.as_json(Row(MOE, "triton", 1, 1, 0, why="vllm is not installed"))
    assert ("us" in absent, absent["why"], absent["failed"]) == (False, "vllm is not installed", False)
