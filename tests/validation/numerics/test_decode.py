# SPDX-License-Identifier: Apache-2.0
"""Cases of the decode kernels: held beside an ideal kernel, steady by bits, their layouts, and numbers that try a quantizer."""

import contextvars
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from stack.validation.numerics import running
from stack.validation.numerics.agreement import Agreement, Compared
from stack.validation.numerics.blocks import MXFP4, Blocks, Rounding, quantize
from stack.validation.numerics.cases import IDEAL_BAR, BesideIdeal, KernelCase, Same, declared
from stack.validation.numerics.experts import Experts, swiglu
from stack.validation.numerics.fixed_point import fixed_point
from stack.validation.numerics.formats import bfloat16
from stack.validation.numerics.judging import Rounded, beside_ideal, judge
from stack.validation.numerics.kernels import Kernel, decode
from stack.validation.numerics.linear import Linear

PROBLEMS: dict[str, Experts | Linear] = {
    "experts": Experts(5, experts=8, intermediate=64),
    "some of the experts": Experts(5, experts=8, intermediate=64, elsewhere=3),
    "an expert a token": Experts(5, experts=8, intermediate=64, top=1),
    "linear": Linear(5, 512, 700, "mxfp4"),
    "without a bias": Linear(1, 512, 700, "mxfp4", bias=False),
}
COARSER = [
    ("experts", "each expert's share rounded"),
    ("experts", "first product rounded"),
    ("experts", "activation rounded to bfloat16"),
    ("some of the experts", "each expert's share rounded"),
    ("some of the experts", "first product rounded"),
    ("some of the experts", "activation rounded to bfloat16"),
    ("an expert a token", "first product rounded"),
    ("an expert a token", "activation rounded to bfloat16"),
    ("linear", "each half of the inputs rounded"),
    ("without a bias", "each half of the inputs rounded"),
]
"""Roundings that a kernel does not need, by name; each is computed when a test asks."""


@cache
def rounded(problem: str) -> Rounded:
    return PROBLEMS[problem].rounded(PROBLEMS[problem].truth())


def case_of(problem: str, run: Callable[[Any], Any], bar: float = IDEAL_BAR) -> BesideIdeal:
    return BesideIdeal("kernels/test/case", Kernel("test", ("cpu",), lambda: "", run), PROBLEMS[problem], bar)


def in_single(problem: Experts | Linear) -> np.ndarray:
    """The output of a kernel that accumulates in float32 what it has in fixed point."""
    if isinstance(problem, Linear):
        whole = np.concatenate([part.single() for _, part in problem.chunks() if isinstance(part, Blocks)])
        return bfloat16(problem.x @ whole.T + problem.added)
    output = np.zeros((problem.tokens, problem.hidden), np.float32)
    for one in problem.routed():
        expert = problem.expert(one.expert)
        first = fixed_point(problem.inputs[one.rows]).astype(np.float32) @ expert.gate_up.single().T + expert.gate_up_bias
        hidden = fixed_point(swiglu(first)).astype(np.float32)
        output[one.rows] += one.weights.astype(np.float32)[:, None] * (hidden @ expert.down.single().T + expert.down_bias)
    return bfloat16(output)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_kernel_that_accumulates_in_float32_is_as_good_as_an_ideal_one(problem: str) -> None:
    found = running.outcome(case_of(problem, in_single))
    assert (found["outcome"], found["why"]) == ("passed", "")
    assert found["bar"] == pytest.approx(IDEAL_BAR * found["measured"]["rel_l2 of an ideal kernel"])
    assert found["measured"]["rel_l2"] < found["bar"] < 4e-3


def test_each_rounding_too_many_is_tried() -> None:
    assert {*COARSER} == {(problem, name) for problem in PROBLEMS for name in rounded(problem).coarser}


@pytest.mark.parametrize(("problem", "name"), COARSER)
def test_a_kernel_that_rounds_once_more_than_needed_fails(problem: str, name: str) -> None:
    found = running.outcome(case_of(problem, lambda _: rounded(problem).coarser[name]))
    assert found["outcome"] == "failed"
    assert "as far from the reference as allowed" in found["why"]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_looser_bar_proves_nothing(problem: str) -> None:
    found = running.outcome(case_of(problem, lambda _: rounded(problem).ideal, bar=2.5))
    assert found["outcome"] == "failed"
    assert f"it accepts wrong outputs: {', '.join(rounded(problem).coarser)}" in found["why"]


def test_the_bar_holds_in_the_sizes_of_gpt_oss_too() -> None:
    for problem in (Experts(2, experts=4, intermediate=736), Linear(2, 4096, 2880, "mxfp4")):
        truth, bar = beside_ideal(problem.truth(), problem.rounded(problem.truth()), IDEAL_BAR)
        found = judge(problem.rounded(truth).ideal, truth, bar)
        assert found.why == ""
        assert min(found.mutants.values()) > 1.1


def test_the_same_bits_every_time_or_a_word_about_it() -> None:
    numbers = np.random.default_rng(0).standard_normal(8).astype(np.float32)
    calls: list[int] = []

    def once() -> np.ndarray:
        calls.append(0)
        return numbers * np.float32(1 if len(calls) < 20 else -1) if drifting else numbers

    drifting = False
    assert decode.steady(once) is numbers
    assert len(calls) == 20
    drifting, calls[:] = True, []
    with pytest.raises(decode.Unsteady, match="run 20 of 20 differs from the first in 8 of 8 outputs"):
        decode.steady(once)
    zeros = iter([np.zeros(3, np.float32), -np.zeros(3, np.float32)])
    with pytest.raises(decode.Unsteady, match="in 3 of 3"):
        decode.steady(lambda: next(zeros), runs=2)
    assert (
        "Unsteady: run 2 of 2"
        in running.outcome(case_of("linear", lambda _: decode.steady(iter([zero, -zero]).__next__, 2)))["why"]
    )


zero = np.zeros(3, np.float32)


def test_what_is_only_touched_runs_twice() -> None:
    calls: list[int] = []

    def once() -> np.ndarray:
        calls.append(0)
        return zero

    case = case_of("linear", lambda _: decode.steady(once))
    contextvars.copy_context().run(running.touch, [case])
    assert len(calls) == 2
    decode.steady(once)
    assert len(calls) == 22


def test_scales_stand_where_cublas_documents_them() -> None:
    """Block c of row r, in a tile of 128 rows and 4 blocks, at 16 (r mod 32) + 4 (r div 32) + c ("1D Block Scaling Factors Layout")."""
    scales = np.random.default_rng(0).integers(0, 100, (160, 6), dtype=np.uint8)
    flat = decode.tiled(scales)
    assert flat.size == 256 * 8
    for row, block in np.ndindex(scales.shape):
        tile = row // 128 * 2 + block // 4
        assert flat[512 * tile + 16 * (row % 32) + 4 * (row % 128 // 32) + block % 4] == scales[row, block]


def test_difficult_numbers_are_bfloat16_and_of_every_kind() -> None:
    numbers = decode.difficult()
    assert numbers.dtype == np.float32
    assert not (numbers.view(np.uint32) & 0xFFFF)[np.isfinite(numbers)].any()
    finite = numbers[np.isfinite(numbers)]
    assert np.isnan(numbers).any() and np.isinf(numbers).any()
    assert (finite == 0).any() and np.signbit(finite[finite == 0]).any()
    assert 0 < np.abs(finite[finite != 0]).min() < 2.0**-126
    scales = quantize(MXFP4, numbers).scales
    assert {0, 254, 255} < set(scales.ravel().tolist())


@pytest.mark.parametrize("rounding", [Rounding.FLOOR, Rounding.EVEN])
def test_every_wrong_quantizer_is_told_from_the_right_one(rounding: Rounding) -> None:
    numbers = decode.difficult()
    right, wrong = decode._both(quantize(MXFP4, numbers, rounding)), decode.wrongly_quantized(numbers, rounding)
    case = Same("kernels/test/same", Agreement("test", "numpy", lambda: Compared(right, right, wrong)))
    assert running.outcome(case)["outcome"] == "passed"
    for name, one in wrong.items():
        mutant = Agreement("test", "numpy", lambda one=one: Compared(right, one, wrong))  # type: ignore[misc]
        found = running.outcome(Same("kernels/test/same", mutant))
        assert (found["outcome"], " differ" in found["why"]) == ("failed", True), name


def test_what_needs_a_gpu_is_not_run_without_one() -> None:
    mine = [one for one in declared() if one.needs == decode.CAPABLE]
    assert {one.name.split("/")[1] for one in mine} == {"moe", "linear", "formats", "sanitizer"}
    assert all(running.outcome(one)["outcome"] == "not-run" for one in mine)
    limits = {one.problem.tokens for one in mine if isinstance(one, KernelCase) and not hasattr(one.problem, "sequences")}
    assert limits >= {1, 2, 4, 8, 16}
    assert max(limits) == decode.MOST
