# SPDX-License-Identifier: Apache-2.0
"""References by what they come to where it can be worked out by hand; transformers' own are held against them in `stack validate kernels`."""

import math

import numpy as np
import pytest

from stack.validation.numerics.attention import Attention
from stack.validation.numerics.blocks import MXFP8, Rounding, quantize
from stack.validation.numerics.experts import Experts, route, swapped, swiglu
from stack.validation.numerics.linear import FORMATS, Linear, values


def by_hand(layer: Experts) -> np.ndarray:
    """The layer's output, token by token and expert by expert."""
    output = np.zeros((layer.tokens, layer.hidden))
    for token in range(layer.tokens):
        best = sorted(range(layer.experts), key=lambda number: -layer.logits[token, number])[:4]
        weights = [math.exp(layer.logits[token, number]) for number in best]
        for number, weight in zip(best, weights, strict=True):
            expert = layer.expert(number)
            x = layer.inputs[token].astype(np.float64)
            if layer.activations == "mxfp8":
                x = quantize(MXFP8, x[None], Rounding.UP).values()[0]
            first = expert.gate_up.values() @ x + expert.gate_up_bias
            hidden = []
            for row in first.reshape(-1, 2):
                gate, up = min(row[0], 7.0), max(-7.0, min(row[1], 7.0))
                hidden.append((up + 1) * gate / (1 + math.exp(-1.702 * gate)))
            second = np.array(hidden)
            if layer.activations == "mxfp8":
                second = quantize(MXFP8, second[None], Rounding.UP).values()[0]
            output[token] += weight / sum(weights) * (expert.down.values() @ second + expert.down_bias)
    return output


@pytest.mark.parametrize("activations", ["bfloat16", "mxfp8"])
def test_experts_come_to_what_they_come_to_by_hand(activations: str) -> None:
    layer = Experts(3, experts=6, hidden=64, intermediate=32, activations=activations)
    np.testing.assert_allclose(layer.truth().reference, by_hand(layer), rtol=1e-5, atol=1e-6)


def test_an_expert_is_the_same_at_every_call_and_another_by_seed() -> None:
    one, same, other = (Experts(1, 4, 64, 32, seed=seed).expert(2) for seed in (0, 0, 1))
    assert np.array_equal(one.gate_up.codes, same.gate_up.codes)
    assert np.array_equal(one.down_bias, same.down_bias)
    assert not np.array_equal(one.gate_up.codes, other.gate_up.codes)


def test_routing_takes_the_four_best_and_weighs_them() -> None:
    logits = np.array([[0, 5, 1, 5, 2, 3]], np.float32)
    ids, weights = route(logits)
    assert ids.tolist() == [[1, 3, 5, 4]]
    powers = np.exp([5, 5, 3, 2])
    np.testing.assert_allclose(weights[0], powers / powers.sum(), rtol=1e-6)


def test_the_activation_limits_and_survives_what_overflows() -> None:
    found = swiglu(np.array([[100.0, 100.0, -1e5, 0.0, 0.0, -100.0]]))
    assert found[0, 0] == pytest.approx(8 * 7 / (1 + math.exp(-1.702 * 7)))
    assert found[0, 1:].tolist() == [0, 0]
    assert swapped(np.array([[1, 2, 3, 4]])).tolist() == [[2, 1, 4, 3]]


@pytest.mark.parametrize("weight", ["bfloat16", *FORMATS])
def test_a_dense_layer_is_a_product_and_a_bias(weight: str) -> None:
    layer = Linear(2, 64, 8200, weight)  # more outputs than are held at a time
    whole = np.concatenate([values(part) for _, part in layer.chunks()])
    assert whole.shape == (8200, 64)
    np.testing.assert_allclose(layer.truth().reference, layer.x.astype(np.float64) @ whole.T + layer.added, rtol=1e-12)


def test_activations_are_quantized_before_they_are_multiplied() -> None:
    plain, eight, four = (Linear(2, 64, 8, "mxfp4", activations=kind) for kind in ("bfloat16", "mxfp8", "nvfp4"))
    assert np.array_equal(eight.seen(), quantize(MXFP8, plain.x, Rounding.UP).values())
    error = [np.abs(one.seen() - plain.seen()).max() for one in (plain, eight, four)]
    assert 0 == error[0] < error[1] < error[2]


def test_one_key_and_a_sink_share_the_weight() -> None:
    one = Attention(((1, 1),), heads=4, shared=2, width=8)
    key, value = (each[0].astype(np.float64) for each in one.keys(0))
    for head in range(4):
        logit = one.queries[0, head].astype(np.float64) @ key[head // 2] / math.sqrt(8)
        share = math.exp(logit) / (math.exp(logit) + math.exp(one.sinks[head]))
        np.testing.assert_allclose(one.truth().reference[0].reshape(4, 8)[head], share * value[head // 2])


def test_what_is_beyond_the_window_does_not_count() -> None:
    windowed, full = (Attention(((3, 9), (2, 4)), window, heads=2, shared=1, width=4) for window in (4, None))
    key, value = (each.astype(np.float64)[:, 0] for each in windowed.keys(0))
    query = windowed.queries[0].astype(np.float64)  # the first of three, at place 6: it sees 3 to 6
    logits = query @ key[3:7].T / 2
    powers = np.exp(logits)
    expected = powers @ value[3:7] / (powers.sum(axis=1) + np.exp(windowed.sinks))[:, None]
    np.testing.assert_allclose(windowed.truth().reference[0].reshape(2, 4), expected)
    # The second sequence has no more than four tokens.
    np.testing.assert_array_equal(windowed.truth().reference[3:], full.truth().reference[3:])
    assert "window longer by one" not in full.truth().mutants


def test_a_cache_in_eight_bits_holds_rounded_keys() -> None:
    exact, rounded, cut = (
        Attention(((2, 40),), cache=kind, heads=4, shared=2, width=8) for kind in ("bfloat16", "e4m3", "e4m3-cut")
    )
    reference = exact.truth().reference
    errors = [np.linalg.norm(one.truth().reference - reference) / np.linalg.norm(reference) for one in (rounded, cut)]
    assert 0.005 < errors[0] < errors[1] < 0.2
