# SPDX-License-Identifier: Apache-2.0
"""Kernels of one token out of two traces, by part; and cases out of what the benchmark of kernels says."""

import json
from pathlib import Path
from typing import Any

import pytest

from laboratory.target import profile
from laboratory.target import runner as target_runner
from stack.base.errors import StackError
from stack.model.stack import load
from stack.model.verdict import Outcome
from stack.validation.suite import Job

LAYERS = 2
# As the demangler writes them in torch's traces.
GEMV = "void flashinfer::mxfp4::mxfp4_gemv_kernel<1, 1, 8>(flashinfer::mxfp4::Gemv)"
LAYER = (
    ("void marlin_moe_wna16::Marlin<float>", (132,), 20.0),
    (GEMV, (264,), 4.0),
    ("kernel_unified_attention_2d", (8, 1), 6.0),
    ("triton_red_fused_add_mean_moe_forward_1", (1,), 2.0),
)
HEAD = (GEMV, (1571,), 80.0)


def trace(tokens: int, prompt: int = 512, *, early: float = 0.0) -> bytes:
    """An answer's trace: the prompt's kernels, then those of each token after the first.

    Each kernel of a token begins so many microseconds before the one before it ends, and waits for it.
    """
    ran: list[tuple[str, tuple[int, ...], float]] = [("cutlass_gemm_prefill", (prompt,), 500.0), HEAD]
    for _ in range(tokens - 1):
        ran += [*(kernel for _ in range(LAYERS) for kernel in LAYER), HEAD]
    events: list[dict[str, Any]] = []
    clock = 1e9
    for name, grid, time in ran:
        event = {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "ts": clock - early,
            "dur": time + early,
            "args": {"grid": list(grid)},
        }
        events.append(event)
        clock += time
    others = [{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "dur": 9.0}, {"ph": "M", "name": "process_name"}]
    return json.dumps({"traceEvents": [*events, *others]}).encode()


def test_a_token_is_the_difference_of_two_answers() -> None:
    found = profile.token(trace(8), trace(40), 32)
    assert found.kernels == LAYERS * len(LAYER) + 1
    assert found.busy == LAYERS * 32.0 + 80.0
    assert dict(found.parts()) == {"experts": 40.0, "dense": 8.0, "attention": 12.0, "small": 4.0, "lm_head": 80.0}
    measured = found.measured()
    assert measured["kernels a token"] == 9
    assert measured["us of lm_head"] == 80.0
    assert str(measured["longest"]).startswith("80.0 us in 1 of void flashinfer::mxfp4::mxfp4_gemv_kernel<1, 1, 8>")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("void flashinfer::mxfp4::mxfp4_moe_up_kernel<1>(flashinfer::mxfp4::MoeDecode)", "experts"),
        ("void flashinfer::mxfp4::mxfp4_moe_down_kernel<1>(flashinfer::mxfp4::MoeDecode, int)", "experts"),
        ("void flashinfer::mxfp4::mxfp4_gemv_kernel<1, 1, 8>(flashinfer::mxfp4::Gemv)", "dense"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(__nv_bfloat16 const*)", "attention"),
        ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<1> > >()", "attention"),
        ("void marlin::Marlin<__nv_bfloat16, 256>(int4 const*)", "dense"),
    ],
)
def test_a_kernel_is_of_its_part_by_the_name_that_traces_have(name: str, part: str) -> None:
    kernel = (name, (1,))
    assert dict(profile.Token({kernel: 36.0}, {kernel: 1.0}, 1.0).parts()) == {part: 1.0}


def test_microseconds_in_which_two_run_are_busy_once() -> None:
    found = profile.token(trace(8, early=1.5), trace(40, early=1.5), 32)
    assert found.busy == LAYERS * 32.0 + 80.0
    assert sum(found.times.values()) == found.busy + 1.5 * found.kernels


def test_traces_that_say_nothing_are_refused() -> None:
    with pytest.raises(StackError, match="has no more kernels than the shorter one"):
        profile.token(trace(8), trace(8), 32)
    for bad in (b"", b"{}", b"[]"):
        with pytest.raises(StackError, match="is not a trace"):
            profile.token(bad, trace(8), 32)


def test_of_a_folder_the_one_new_trace_is_taken(tmp_path: Path) -> None:
    old, new, other = (tmp_path / f"{name}.pt.trace.json" for name in ("old", "new", "other"))
    old.write_bytes(b"old")
    before = profile.traces(tmp_path)
    with pytest.raises(StackError, match="wrote 0 traces, not one"):
        profile.written(tmp_path, before)
    new.write_bytes(b"new")
    assert profile.written(tmp_path, before) == b"new"
    other.write_bytes(b"other")
    with pytest.raises(StackError, match="wrote 2 traces, not one"):
        profile.written(tmp_path, before)


def said(**more: Any) -> dict[str, Any]:
    row = {"part": "moe", "kernel": "triton", "tokens": 1, "why": "", "failed": False}
    goal = {"name": "MoE, M = 1, times as fast as marlin", "found": 1.7, "least": 1.6, "met": True}
    return {
        "about": {"gpu": "some", "copy_gb_s": 4260.0},
        "rows": [row | more.get("row", {})],
        "goals": [goal | more.get("goal", {})],
    }


def test_each_goal_of_the_benchmark_is_a_case() -> None:
    whole, goal = target_runner.timed(said(), "sm90")
    assert (whole.name, whole.outcome, whole.measured["copy_gb_s"]) == ("bench/kernels/all", Outcome.PASSED, 4260.0)
    assert goal.name == "bench/kernels/MoE/M=1/times-as-fast-as-marlin"
    assert (goal.outcome, goal.measured["found"], goal.bar) == (Outcome.PASSED, 1.7, 1.6)
    _, missed = target_runner.timed(said(goal={"found": 1.5, "met": False}), "sm90")
    assert (missed.outcome, missed.why) == (Outcome.FAILED, "1.500, which must be at least 1.60")
    _, absent = target_runner.timed(said(goal={"found": None, "met": None}), "sm90")
    assert absent.outcome is Outcome.NOT_RUN
    wrong, _ = target_runner.timed(said(row={"failed": True, "why": "wrong: rel-L2 0.5 to float32"}), "sm90")
    assert (wrong.outcome, wrong.why) == (Outcome.FAILED, "moe, triton, M = 1: wrong: rel-L2 0.5 to float32")


def test_a_benchmark_that_does_not_run_has_failed_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    root = Path(__file__).parents[3]
    run = target_runner.Run(root, tmp_path, load(root), Job(), "sm90")
    (case,) = target_runner._timed(run)
    assert (case.name, case.outcome) == ("bench/kernels/all", Outcome.FAILED)
    assert case.why == f"it ended with 2: see {tmp_path.name}/decode-kernels.log"
    assert "needs torch and an NVIDIA GPU" in (tmp_path / "decode-kernels.log").read_text()
    run.until = 0.0
    late = list(target_runner._timed(run))
    assert {(case.outcome, case.why) for case in late} == {(Outcome.NOT_RUN, "the time was up before they were measured")}
    assert len({case.name for case in late}) == 25
    asked = target_runner.Run(root, tmp_path, load(root), Job(only=("bench/kernels/MoE/M=1/*-marlin",)), "sm90", until=0.0)
    assert [case.name for case in target_runner._timed(asked)] == ["bench/kernels/MoE/M=1/times-as-fast-as-marlin"]
    # The time is up while it runs: it is ended.
    clock = iter((0.0, 0.0))
    monkeypatch.setattr(target_runner.time, "monotonic", lambda: next(clock, 0.01))
    run.until = 0.01
    ended = list(target_runner._timed(run))
    assert {case.why for case in ended} == {f"the time was up while they were measured: see {tmp_path.name}/decode-kernels.log"}
    assert {case.outcome for case in ended} == {Outcome.NOT_RUN}
    assert list(target_runner._timed(target_runner.Run(root, tmp_path, load(root), Job(only=("serve/*",)), "sm90"))) == []


def test_of_the_benchmark_only_what_is_asked_for_is_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends like the benchmark stands in for it: it needs a GPU."""
    root = Path(__file__).parents[3]
    answer = tmp_path / "said.json"
    answer.write_text(json.dumps(said()))
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\n[ "$2 $3 $4" = "laboratory.decoding --quick --json" ] && cp "{answer}" "$5"\n')
    program.chmod(0o755)
    monkeypatch.setattr(target_runner.sys, "executable", str(program))

    def names(*only: str) -> list[str]:
        return [
            case.name for case in target_runner._timed(target_runner.Run(root, tmp_path, load(root), Job(only=only), "sm90"))
        ]

    goal = "bench/kernels/MoE/M=1/times-as-fast-as-marlin"
    assert names() == ["bench/kernels/all", goal]
    assert names("bench/kernels/MoE*") == [goal]
    assert names("bench/kernels/all") == ["bench/kernels/all"]
