# SPDX-License-Identifier: Apache-2.0
"""Problems at the ends of what the decode kernels promise: each reaches its end, and tells kernels that stop before it."""

from collections.abc import Callable

import numpy as np
import pytest

from stack.validation.numerics import range_cases
from stack.validation.numerics.blocks import Blocks
from stack.validation.numerics.cases import IDEAL_BAR
from stack.validation.numerics.dense_ranges import LinearScaled, LinearSpoiled
from stack.validation.numerics.experts import Experts
from stack.validation.numerics.formats import bfloat16, decode_e8m0
from stack.validation.numerics.judging import Truth, beside_ideal, judge, measure
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.ranges import Outliers, Product, Scaled
from stack.validation.numerics.routes import Decided, Many, Padded, Unknown, Weighted
from stack.validation.numerics.spoiled import Spoiled

CASES = [*range_cases.experts(), *range_cases.dense()]
QUICK = [case for case in CASES if "8192" not in case.name]
SIGNED_31 = 2**31


def of(kind: type[Experts] | type[Linear]) -> list[Experts | Linear]:
    found = [case.problem for case in CASES if type(case.problem) is kind]
    assert found
    return found


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.name}/m={case.problem.tokens}")
def test_a_kernel_in_the_documented_format_passes_and_no_wrong_one(case: range_cases.ExpertsCase) -> None:
    truth = case.problem.truth()
    rounded = case.problem.rounded(truth)
    beside, bar = beside_ideal(truth, rounded, IDEAL_BAR)
    found = judge(rounded.ideal, beside, bar)
    assert found.why == ""
    assert bar / IDEAL_BAR < 1e-2  # above it, a verdict takes no case


def exponents(blocks: Blocks) -> np.ndarray:
    return np.asarray(np.log2(decode_e8m0(blocks.scales)))


def test_scales_reach_both_ends_of_the_documented_range_and_stay_in_it() -> None:
    found: dict[Product, list[np.ndarray]] = {product: [] for product in Product}
    for layer in of(Scaled):
        assert isinstance(layer, Scaled)
        expert = layer.expert(0)
        weights = {Product.FIRST: expert.gate_up, Product.SECOND: expert.down}
        for blocks in weights.values():
            assert exponents(blocks).min() >= -61 and exponents(blocks).max() <= 65
        found[layer.product].append(exponents(weights[layer.product]).ravel())
    for each in found.values():
        every = np.unique(np.concatenate(each))
        assert (every.min(), every.max()) == (-61, 65)
        assert np.diff(every).max() <= 11  # only between 2^51 and the upper end
        assert len(every) > 80
    layers = [part for layer in of(LinearScaled) for _, part in layer.chunks() if isinstance(part, Blocks)]  # type: ignore[union-attr]
    dense = np.concatenate([exponents(part).ravel() for part in layers])
    assert (dense.min(), dense.max()) == (-61, 65)


def test_activations_stay_where_scales_are_exact() -> None:
    for layer in of(Scaled):
        assert isinstance(layer, Scaled)
        sizes = np.abs(layer.inputs[layer.inputs != 0])
        assert sizes.max() < 2.0**60
        assert np.median(sizes) > 2.0**-50


def test_outliers_are_hundreds_and_the_silent_ones_have_no_weights() -> None:
    for layer in of(Outliers):
        assert isinstance(layer, Outliers)
        large = np.abs(layer.inputs) >= 100
        assert np.median(np.abs(layer.inputs)) < 1
        if not layer.silent:
            assert large.sum(axis=1).tolist() == [3] * layer.tokens
            continue
        assert (large.reshape(layer.tokens, -1, 32).sum(axis=2) == 1).all()
        for expert in map(layer.expert, range(layer.experts)):
            assert not expert.gate_up.values()[:, large[0]].any()
            assert expert.gate_up.values().any(axis=0).sum() == layer.hidden - layer.hidden // 32


def test_logits_are_of_every_kind() -> None:
    logits = max((layer for layer in of(Decided)), key=lambda layer: layer.tokens).logits  # type: ignore[union-attr]
    rows = [set(np.unique(row).tolist()) for row in logits]
    assert {200.0, -200.0} in rows and {200.0} in rows and {-200.0} in rows
    assert any(row == {0.0} and len(set(np.signbit(one))) == 2 for row, one in zip(rows, logits, strict=True))
    assert np.array_equal(bfloat16(logits), logits)


def test_a_layer_of_very_many_experts_reaches_beyond_32_bits() -> None:
    layer = max(of(Many), key=lambda layer: layer.experts)  # type: ignore[union-attr]
    assert isinstance(layer, Many)
    first, second = layer.hidden * layer.intermediate, layer.hidden * layer.intermediate // 2
    used = np.unique(layer.route[0]).astype(np.int64)
    assert {0, layer.experts - 1} <= set(used.tolist())
    assert layer.experts <= 65535
    for bytes_of_one in (first, second):
        assert (used * bytes_of_one > SIGNED_31).any()
    assert layer.experts * first > 2**32
    assert len(used) <= layer.tokens * layer.top


def test_router_weights_are_of_both_signs_and_some_are_large() -> None:
    (layer,) = of(Weighted)
    assert isinstance(layer, Weighted)
    weights = layer.route[1]
    assert weights.min() < -1 and weights.max() > 1
    assert np.abs(weights.sum(axis=1) - 1).min() > 0.1


def test_groups_of_every_size_are_multiplied_together() -> None:
    together = [case.problem for case in CASES if case.name == "together"]
    assert {layer.tokens for layer in together} >= {3, 5, 6, 7, 13}
    for layer in together:
        assert isinstance(layer, Experts)
        assert all(len(part.rows) == layer.tokens for part in layer.routed())


def test_every_token_has_an_unknown_id_and_known_ones() -> None:
    for layer in of(Unknown):
        assert isinstance(layer, Unknown)
        ids = layer.route[0]
        unknown = (ids < 0) | (ids >= layer.experts)
        assert (unknown.sum(axis=1) == 1).all()
        assert {-1, layer.experts, -(2**31), 2**31 - 1} <= set(ids[unknown].tolist())


def test_padding_is_zero_and_its_bytes_differ() -> None:
    for layer in of(Padded):
        assert isinstance(layer, Padded)
        padding = layer.padding != 0
        assert len(set(layer.padding[padding].tolist())) > 1
        assert np.isnan(layer.inputs[padding]).all()
        reference = layer.truth().reference
        assert not reference[padding].any()
        assert reference[~padding].any(axis=1).all()


def test_what_is_no_number_spoils_what_it_is_a_factor_of() -> None:
    twelve = max(of(Spoiled), key=lambda layer: layer.tokens)
    assert isinstance(twelve, Spoiled)
    reference = twelve.truth().reference
    rows = np.isnan(reference).all(axis=1)
    assert rows[:3].all()
    assert np.isnan(reference[3]).sum() == 1
    assert np.isfinite(reference).all(axis=1).sum() >= 4
    (dense,) = [layer for layer in of(LinearSpoiled) if layer.tokens > 1]
    assert np.isnan(dense.truth().reference).all(axis=1).tolist() == [False, True, True, False]


LOST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "a number": lambda output: np.where(np.isnan(output), 0.0, output),
    "another NaN": lambda output: np.where(np.arange(output.size).reshape(output.shape) == output.size - 1, np.nan, output),
}


@pytest.mark.parametrize("change", LOST)
def test_where_a_reference_is_nan_an_output_is_and_nowhere_else(change: str) -> None:
    reference = np.random.default_rng(0).standard_normal((3, 8))
    reference[1] = np.nan
    truth = Truth(reference, {})
    assert measure(reference, truth).rel_l2 == 0
    assert measure(np.where(np.isnan(reference), -np.inf, reference), truth).rel_l2 == 0
    assert measure(LOST[change](reference), truth).rel_l2 == np.inf
