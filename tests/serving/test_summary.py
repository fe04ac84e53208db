# SPDX-License-Identifier: Apache-2.0
"""What runs, in a line."""

from pathlib import Path

import pytest

from stack.deploy import vllm_log
from stack.deploy.vllm_log import Mismatch
from stack.serving import summary
from stack.serving.start import Up
from stack.validation.python_env import Process

LOGS = Path(__file__).parents[1] / "deploy/logs"


def up(name: str) -> Up:
    told = vllm_log.read((LOGS / f"{name}.log").read_bytes().decode())
    return Up(told, (), "http://127.0.0.1:8000", "gpt-oss", 61.6, int)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("made-spark-compose", "MoE MARLIN · linear Marlin MXFP4 · attention FLASHINFER · KV fp8 · graphs on · 131072 tokens"),
        ("h200-default", "MoE TRITON · linear not named · attention FLASH_ATTN · KV bfloat16 · graphs on · 16384 tokens"),
        (
            "h200-eager",
            "MoE MARLIN · linear Marlin MXFP4 · attention TRITON_ATTN · KV bfloat16 · graphs off (enforce_eager is set) · 16384 tokens",
        ),
        (
            "made-no-linear",
            "MoE not named · linear not named · attention not named · KV not named · graphs not said · tokens not said",
        ),
    ],
)
def test_the_line(name: str, line: str) -> None:
    assert summary.line(up(name)) == f"{line} · ready in 62 s · http://127.0.0.1:8000"


def test_linear_kernels_of_other_kinds() -> None:
    text = "".join(
        f"(EngineCore pid=7) INFO 11-22 09:00:00 [__init__.py:1] {one}\n"
        for one in (
            "Using MarlinLinearKernel for mixed-precision linear",
            "Selected CutlassFP8ScaledMMLinearKernel for Fp8LinearMethod",
        )
    )
    told = vllm_log.read(text)
    line = summary.line(Up(told, (), None, None, 1, int))
    assert "linear Marlin mixed-precision, CutlassFP8ScaledMM Fp8LinearMethod" in line
    assert line.endswith("no API on this node")


def test_a_mismatch_says_why_where_the_log_does() -> None:
    assert summary.mismatch(Mismatch("MoE", "A", "B")) == "MoE: expected A, runs B"
    assert summary.mismatch(Mismatch("MoE", "A", "B", ("c", "d"))) == "MoE: expected A, runs B (c; d)"


def test_a_line_for_a_shell() -> None:
    here = {"PATH": "/bin", "VLLM_API_KEY": "secret"}
    command = ("vllm", "serve", "a b")
    assert summary.shell(Process(command, {**here, "A": "x y"}), here) == "A='x y' vllm serve 'a b'"
    less = summary.shell(Process(command, {"A": "1", "VLLM_API_KEY": "secret"}), here)
    assert less == "env -i A=1 VLLM_API_KEY=\"$VLLM_API_KEY\" vllm serve 'a b'"
    assert summary.shell(Process(command, {"A": "1"}), here) == "env -i A=1 vllm serve 'a b'"
    odd = summary.shell(Process(command, {**here, "A=1; touch X; B": "1"}), here)
    assert odd == "'A=1; touch X; B'=1 vllm serve 'a b'"
