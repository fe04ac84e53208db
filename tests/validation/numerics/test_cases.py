# SPDX-License-Identifier: Apache-2.0
"""A case passes for a kernel that is right, fails for every wrong one, and fails itself where its bar lets one through."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from stack.validation.numerics import KINDS, NOT_COMPILED, SM120_ON_SM90, running
from stack.validation.numerics.agreement import AGREEMENTS, Agreement, Compared
from stack.validation.numerics.attention import Attention
from stack.validation.numerics.blocks import MXFP8, Rounding, quantize
from stack.validation.numerics.cases import BFLOAT16_BAR, MXFP8_BAR, AnyCase, KernelCase, Same, declared, named
from stack.validation.numerics.experts import Experts, swiglu
from stack.validation.numerics.formats import bfloat16
from stack.validation.numerics.judging import Fault, Truth, judge, measure, reordered, wrongly_padded
from stack.validation.numerics.kernels import Kernel
from stack.validation.numerics.linear import Linear

PROBLEMS: dict[str, Experts | Attention | Linear] = {
    "experts": Experts(9, experts=8, intermediate=64),
    "experts, mxfp8": Experts(9, experts=8, intermediate=64, activations="mxfp8"),
    "attention": Attention(((1, 1), (5, 200)), window=64, heads=4, shared=2),
    "attention, e4m3": Attention(((1, 1), (5, 200)), window=64, cache="e4m3", heads=4, shared=2),
    "linear": Linear(5, 256, 300),
    **{f"linear, {form}": Linear(5, 256, 300, form) for form in ("mxfp4", "mxfp8", "nvfp4")},
}
FAULTS = {
    "experts": (
        *("gate and up swapped", "activation not limited", "activation with alpha 1", "first bias missing"),
        *("second bias missing", "nibbles swapped", "scales shifted by a block", "one scale a row", "one expert dropped"),
        *("a block of the first weight doubled", "a block of the second weight doubled"),
    ),
    "attention": (
        *("sink missing", "heads grouped the wrong way", "last key missing", "one page read for the next"),
        *("window longer by one", "window shorter by one"),
    ),
    "linear": ("bias missing", "outputs shifted by one", "a block of the weight doubled"),
}
"""The wrong outputs of each kind of problem, by name: they are computed when a test asks."""
OF_FORMAT = {
    "attention, e4m3": ("scales of keys and values missing",),
    "linear": ("last inputs missing",),
    "linear, mxfp4": ("nibbles swapped", "scales shifted by a block", "one scale a row"),
    "linear, mxfp8": ("scales shifted by a block", "one scale a row"),
    "linear, nvfp4": ("nibbles swapped", "scales shifted by a block", "one scale a row"),
}
WRONG = [
    (problem, fault)
    for problem in PROBLEMS
    for fault in ("zeros", "noise", *FAULTS[problem.partition(",")[0]], *OF_FORMAT.get(problem, ()))
]
SMALL = "a block"


@cache
def truth_of(problem: str) -> Truth:
    return PROBLEMS[problem].truth()


def wrong_outputs(truth: Truth) -> dict[str, np.ndarray]:
    noise = np.random.default_rng(7).standard_normal(truth.reference.shape) * truth.reference.std()
    by_fault = {fault.name: fault.applied(truth.reference) for fault in truth.faults}
    return {"zeros": np.zeros_like(truth.reference), "noise": noise, **truth.mutants, **by_fault}


def case_of(problem: str, run: Callable[[Any], Any], bar: float = BFLOAT16_BAR) -> KernelCase:
    return KernelCase("kernels/test/case", Kernel("test", ("cpu",), lambda: "", run), PROBLEMS[problem], bar)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_kernel_that_rounds_its_output_passes(problem: str) -> None:
    found = running.outcome(case_of(problem, lambda _: bfloat16(truth_of(problem).reference)))
    assert (found["outcome"], found["why"]) == ("passed", "")
    assert found["margins"]["good"] > 2
    assert found["margins"]["nearest by rel_l2"] > 1
    assert found["measured"]["wrong outputs rejected"] == len(wrong_outputs(truth_of(problem)))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_wrong_output_is_tried(problem: str) -> None:
    assert {fault for name, fault in WRONG if name == problem} == wrong_outputs(truth_of(problem)).keys()


@pytest.mark.parametrize(("problem", "mutant"), WRONG)
def test_a_kernel_with_this_fault_fails(problem: str, mutant: str) -> None:
    # As a kernel would have it: rounded, on top of the rounding that a good one does.
    output = bfloat16(wrong_outputs(truth_of(problem))[mutant])
    found = running.outcome(case_of(problem, lambda _: output))
    assert found["outcome"] == "failed"
    assert "as far from the reference as allowed" in found["why"]


def scales_its_input(layer: Linear) -> np.ndarray:
    layer.x[:] *= 1.5
    return layer.truth().reference


def sorts_its_route(layer: Experts) -> np.ndarray:
    layer.route[0].sort(axis=1)
    return layer.truth().reference


def forgets_its_sinks(one: Attention) -> np.ndarray:
    one.sinks[:] = 0
    return one.truth().reference


@pytest.mark.parametrize(
    ("problem", "run"), [("linear", scales_its_input), ("experts", sorts_its_route), ("attention", forgets_its_sinks)]
)
def test_a_kernel_that_writes_over_its_inputs_is_held_against_what_they_were(problem: str, run: Callable[[Any], Any]) -> None:
    assert running.outcome(case_of(problem, run))["outcome"] == "failed"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_bar_that_lets_a_wrong_output_through_fails_the_case(problem: str) -> None:
    found = running.outcome(case_of(problem, lambda _: truth_of(problem).reference, bar=1.1))
    assert found["outcome"] == "failed"
    assert "the bar proves nothing, it accepts wrong outputs: " in found["why"]


def rounding_between(layer: Experts) -> np.ndarray:
    """The experts' output as a kernel has it that keeps what is between its multiplications in bfloat16."""
    output = np.zeros((layer.tokens, layer.hidden))
    eight = layer.activations == "mxfp8"
    for one in layer.routed():
        expert = layer.expert(one.expert)
        x = layer.inputs[one.rows].astype(np.float64)
        x = quantize(MXFP8, x, Rounding.UP).values() if eight else x
        hidden = bfloat16(swiglu(bfloat16(x @ expert.gate_up.values().T + expert.gate_up_bias))).astype(np.float64)
        hidden = quantize(MXFP8, hidden, Rounding.UP).values() if eight else hidden
        output[one.rows] += one.weights[:, None] * bfloat16(hidden @ expert.down.values().T + expert.down_bias)
    return bfloat16(output)


@pytest.mark.parametrize(("activations", "bar"), [("bfloat16", BFLOAT16_BAR), ("mxfp8", MXFP8_BAR)])
def test_the_bar_of_experts_leaves_room_for_rounding_and_for_no_fault(activations: str, bar: float) -> None:
    layer = Experts(33, experts=8, intermediate=704, activations=activations)
    found = judge(rounding_between(layer), layer.truth(), bar)
    assert found.why == ""
    assert 0.3 < found.excess < 0.8
    assert min(excess for name, excess in found.mutants.items() if not name.startswith("a block")) > 1.5


def test_a_block_that_rel_l2_cannot_see_is_seen_by_its_lean() -> None:
    truth = Experts(9, experts=8).truth()  # one of 518,400 blocks of the expert
    (first, _) = truth.faults
    found = measure(first.applied(bfloat16(truth.reference).astype(np.float64)), truth)
    assert found.rel_l2 < BFLOAT16_BAR
    assert found.lean == pytest.approx(1, abs=0.1)
    assert found.excess(BFLOAT16_BAR) > 1


def test_a_few_wrong_rows_do_not_drown_in_the_others() -> None:
    reference = np.random.default_rng(0).standard_normal((10_000, 16))
    output = reference.copy()
    output[77] = 0
    found = measure(output, Truth(reference, {}))
    assert (found.rel_l2, found.overall < 0.02) == (1, True)


@pytest.mark.parametrize("output", [np.full((5, 300), np.nan), np.full((5, 300), np.inf), np.zeros((300, 5))])
def test_what_is_no_output_is_infinitely_wrong(output: np.ndarray) -> None:
    found = running.outcome(case_of("linear", lambda _: output))
    assert found["outcome"] == "failed"
    assert found["measured"]["rel_l2"] == "inf"


def test_sums_in_another_order_are_told_from_other_sums() -> None:
    terms = np.random.default_rng(5).standard_normal((256, 3, 16384)).astype(np.float32)
    found, other = (bfloat16(np.cumsum(one, axis=0, dtype=np.float32)[-1]) for one in (terms, terms[::-1]))
    assert not np.array_equal(found, other)
    assert reordered(found, other)
    assert not reordered(found, bfloat16(terms[1:].sum(axis=0)))
    one_row = other.copy()
    one_row[2] *= 1.002
    assert not reordered(one_row, other)
    assert not reordered(np.full_like(other, np.nan), other)
    assert reordered(np.zeros((1, 3)), np.zeros((1, 3)))


def test_padding_is_zeros_and_changes_nothing() -> None:
    whole = np.random.default_rng(6).standard_normal((5, 64)).astype(np.float32)
    padding = np.arange(5) % 3 == 1
    found = np.where(padding[:, None], 0, whole)
    assert wrongly_padded(found, found, whole, padding) == ""
    assert wrongly_padded(whole, whole, whole, padding) == "padding is not zeros"
    assert wrongly_padded(found, found * np.float32(1 + 2**-23), whole, padding).endswith(
        "change with the content of the padding"
    )
    assert wrongly_padded(found * 2, found * 2, whole, padding).endswith("as without padding")


def test_a_row_of_zeros_allows_nothing() -> None:
    reference = np.zeros((2, 4))
    assert measure(reference, Truth(reference, {})).rel_l2 == 0
    assert measure(reference + 1e-9, Truth(reference, {})).rel_l2 == np.inf
    empty = Fault("nothing", np.arange(2), slice(None), np.zeros((2, 4)))
    assert "nothing" in judge(reference + 1, Truth(reference + 1, {}, [empty]), 0.1).passed_through


def test_what_cannot_run_here_is_not_run_with_the_reason() -> None:
    kernel: Kernel[Any] = Kernel("test", ("sm121",), lambda: "needs sm121", lambda _: pytest.fail("it ran"))
    found = running.outcome(KernelCase("kernels/test/far", kernel, PROBLEMS["linear"], 0.01))
    assert (found["outcome"], found["why"], found["needs"]) == ("not-run", "needs sm121", ["sm121"])
    assert found["measured"] == {}


def test_of_several_gpus_a_case_needed_the_one_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    far: Kernel[Any] = Kernel("test", ("sm90", "sm121"), lambda: "", lambda _: truth_of("linear").reference)
    case = KernelCase("kernels/test/far", far, PROBLEMS["linear"], 0.01)
    assert running.outcome(case)["needs"] == ["sm90", "sm121"]
    monkeypatch.setattr(running, "capability", lambda: "sm90")
    assert running.outcome(case)["needs"] == ["sm90"]


def test_a_kernel_on_a_cpu_says_what_it_does_not_compile() -> None:
    for name, says in (("kernels/moe/x-emulated/case", True), ("kernels/moe/x/case", False)):
        case = replace(case_of("linear", lambda _: truth_of("linear").reference), name=name)
        measured = running.outcome(case)["measured"]
        assert ("primitives.cuh" in str(measured.get(NOT_COMPILED))) == says


def test_a_kernel_that_raises_has_failed() -> None:
    found = running.outcome(case_of("linear", lambda _: 1 / 0))
    assert (found["outcome"], found["why"]) == ("failed", "ZeroDivisionError: division by zero")


def dies(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(_: object) -> None:
    signal.pause()


@pytest.mark.parametrize(("run", "why"), [(dies, "its process ended with SIGKILL"), (hangs, "it took more than 0 s")])
def test_a_kernel_that_takes_its_process_along_has_failed(
    run: Callable[[object], None], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = case_of("linear", run)
    case = replace(case, kernel=replace(case.kernel, seconds=0.4 if run is hangs else 60.0))
    monkeypatch.setattr(running, "named", lambda _: (case,))
    found = running._apart(multiprocessing.get_context("fork"), case)
    assert (found["outcome"], found["why"]) == ("failed", why)


def test_names_are_unique_and_no_case_needs_nothing() -> None:
    names = [one.name for one in declared()]
    assert len(set(names)) == len(names)
    assert all(one.needs for one in declared())
    assert named("kernels/moe/vllm-cpu/*m=33")
    assert named("kernels/none") == ()


def test_a_window_that_is_wrong_far_back_only_is_seen() -> None:
    """Such as one whose start is counted in too few bits: right up to 4096 keys."""
    mine = [one for one in declared() if one.name == "kernels/attention/vllm-cpu/long/window=128/kv=bfloat16"]
    [case] = [one for one in mine if isinstance(one, KernelCase)]
    assert isinstance(case.problem, Attention)
    small = replace(case.problem, heads=4, shared=2)
    assert all(keys > 4096 for _, keys in small.sequences)
    truth = small.truth()
    found = judge(bfloat16(truth.mutants["window longer by one"]), truth, case.bar)
    assert found.excess > 2
    assert found.passed_through == ()


def test_gpt_oss_is_tried_in_its_own_sizes() -> None:
    mine = [one.problem for one in declared() if isinstance(one, KernelCase) and one.kernel.name == "vllm-cpu"]
    experts = [one for one in mine if isinstance(one, Experts)]
    assert {one.tokens for one in experts} == {1, 2, 4, 8, 33, 128, 1000}
    assert any((one.experts, one.hidden, one.intermediate) == (128, 2880, 2880) for one in experts)
    reduced = [one for one in declared() if isinstance(one, KernelCase) and isinstance(one.problem, Experts)]
    assert all(bool(one.reduced) == (one.problem != Experts(1, activations=one.problem.activations)) for one in reduced)


@pytest.mark.parametrize("agreement", [one for one in AGREEMENTS if one.package == "ml_dtypes"], ids=lambda one: one.name)
def test_formats_agree_with_ml_dtypes_and_wrong_ones_do_not(agreement: Agreement) -> None:
    found = running.outcome(Same("kernels/formats/test", agreement))
    assert (found["outcome"], found["why"]) == ("passed", "")
    compared = agreement.compare()
    for name, wrong in compared.mutants.items():
        mutant = Agreement("test", "numpy", lambda wrong=wrong: Compared(wrong, compared.theirs, compared.mutants))  # type: ignore[misc]
        assert running.outcome(Same("kernels/formats/test", mutant))["outcome"] == "failed", name


def test_a_comparison_that_sees_no_difference_fails() -> None:
    same = np.arange(4)
    case: AnyCase = Same("kernels/formats/test", Agreement("test", "numpy", lambda: Compared(same, same, {"another": same})))
    assert running.outcome(case)["why"] == "the comparison proves nothing, it accepts wrong outputs: another"
    missing = Same("kernels/formats/test", Agreement("test", "no_such_package", lambda: Compared(same, same, {})))
    assert running.outcome(missing)["why"] == "no_such_package is not installed"


def test_every_case_is_of_a_kind_that_is_known_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SM120_ON_SM90, "none")
    assert {one.name[: one.name.index("/", len("kernels/")) + 1] for one in declared()} == {*KINDS}
