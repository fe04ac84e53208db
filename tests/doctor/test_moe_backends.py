# SPDX-License-Identifier: Apache-2.0
"""The backend that is advised for gpt-oss on SM12x starts there, with an upstream release and with this stack."""

import pytest

from stack.deploy import hardware, removed_settings
from stack.doctor import fixing, script, scripts
from stack.doctor.finding import Found, Severity
from stack.doctor.rules import Target

SPARK = hardware.load("spark")
TARGET = Target(SPARK.title, SPARK.capability, int(SPARK.memory * 10**9), SPARK.unified)
OLD = ("MXFP4_BF16", "MXFP4_MXFP8", "MXFP4_MXFP8_CUTLASS", "FP8", "FP4")


def findings(text: str) -> list[Found]:
    subject = scripts.ScriptSubject(script.parse("a.sh", text), {}, TARGET)
    return [each.found for each in scripts.look(subject)]


@pytest.mark.parametrize("name", OLD)
def test_the_advice_of_an_old_variable_starts(name: str) -> None:
    text = f"export VLLM_USE_FLASHINFER_MOE_{name}=1\nvllm serve openai/gpt-oss-120b --host 127.0.0.1 --gpu-memory-utilization 0.7\n"
    fix = next(found.fix for found in findings(text) if "is read by nothing" in found.what)
    wanted = "flashinfer_cutlass_afp8" if name.endswith("CUTLASS") else "marlin"
    assert f"use --moe-backend={wanted}" in fix
    assert "flashinfer_cutlass " not in fix.partition("(")[0]
    made = fixing.corrected(text, findings)
    assert f"--moe-backend {wanted}" in made
    assert not [found for found in findings(made) if found.severity is Severity.WRONG or found.rule == "cutlass-bf16-moe"]


def test_others_than_gpt_oss_keep_cutlass() -> None:
    fixes = [
        found.fix
        for found in findings(
            "export VLLM_USE_FLASHINFER_MOE_FP8=1\nvllm serve a/b --host 127.0.0.1 --gpu-memory-utilization 0.7\n"
        )
    ]
    assert "take it out; use --moe-backend=flashinfer_cutlass (TRTLLM's kernels do not run on SM12x)" in fixes


def test_recipes_are_told_marlin_too() -> None:
    for name in ("MXFP4_BF16", "MXFP4_MXFP8"):
        gone = removed_settings.find(f"VLLM_USE_FLASHINFER_MOE_{name}")
        assert gone is not None
        assert gone.instead.startswith("use --moe-backend=marlin")


def test_cutlass_by_name_is_no_fault_with_this_stack() -> None:
    text = "vllm serve openai/gpt-oss-120b --host 127.0.0.1 --gpu-memory-utilization 0.7 --moe-backend flashinfer_cutlass\n"
    told = next(found for found in findings(text) if found.rule == "cutlass-bf16-moe")
    assert told.severity is Severity.NOTE
    assert "mxfp4-moe" in told.what
    assert "--moe-backend marlin" in told.fix
    assert fixing.corrected(text, findings) == text, "what runs with this stack is left to the person"
