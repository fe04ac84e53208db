# SPDX-License-Identifier: Apache-2.0
"""Cases beneath compute-sanitizer: what its exit codes mean, what runs beneath it, and that the planted faults compile.

A tool of that name stands in for NVIDIA's, which runs on no machine without a GPU: it ends as the real one is documented to.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from stack.proof.compiling import toolkit
from stack.store import cache
from stack.validation.numerics import running, sanitizing
from stack.validation.numerics.cases import KernelCase, named
from stack.validation.numerics.kernels import decode
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.sanitizing import FOUND, Report, Sanitized, why
from tests import keeping
from tests.keeping import Keep, Measured

SEEN = Report(
    FOUND, "========= COMPUTE-SANITIZER\n========= Invalid __global__ write of size 4 bytes\n=========     at beyond\n"
)
CLEAN = Report(0, "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n")
MEMCHECK = Sanitized("kernels/sanitizer/memcheck", "memcheck")


def test_a_clean_run_passes_only_where_the_planted_fault_is_seen() -> None:
    assert why(SEEN, CLEAN) == ""
    assert why(SEEN, SEEN) == "errors: 1: Invalid __global__ write of size 4 bytes; at beyond"
    assert why(SEEN, Report(FOUND, "")) == "errors: 1: "
    assert why(SEEN, Report(1, "Traceback ...\nImportError: no flashinfer")).startswith("the kernels ended with 1: Traceback")
    assert why(CLEAN, CLEAN) == "the check proves nothing, the planted fault ended with 0: ERROR SUMMARY: 0 errors"
    assert why(Report(1, "========= Error: Device not supported"), CLEAN).endswith("ended with 1: Error: Device not supported")


def test_errors_are_those_of_the_summary() -> None:
    assert (SEEN.errors, CLEAN.errors) == (1, 0)
    assert Report(FOUND, "========= ERROR SUMMARY: 64 errors\n").errors == 64
    assert Report(FOUND, "========= RACECHECK SUMMARY: 5 hazards displayed (2 errors, 3 warnings)\n").errors == 2


@pytest.mark.parametrize(("finds", "outcome"), [("faults memcheck", "passed"), ("", "failed"), ("memcheck", "failed")])
def test_the_planted_fault_counts_as_a_margin(
    finds: str, outcome: str, tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "lacks", lambda: "")
    # What nvcc makes here is a program that ends well; so does the other one.
    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\nprintf "#!/bin/sh\\n" > "$2"\nchmod 755 "$2"\n')
    nvcc.chmod(0o755)
    monkeypatch.setattr(sanitizing, "CASES", ("kernels/sanitizer/memcheck",))
    if finds:
        tool.with_suffix(".finds").write_text(finds)
    found = running.outcome(MEMCHECK)
    assert (found["outcome"], found["margins"]["errors of the planted fault"]) == (outcome, 1 if finds else 0), found["why"]


_TOOL = """#!/bin/sh
echo "$@" >> "$0.asked"
[ -e "$0.finds" ] && case "$*" in *"$(cat "$0.finds")"*) exit "$4";; esac
shift 6
exec "$@"
"""


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool that ends with the code that it is asked for where its file says so, else as the program does."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(_TOOL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return program


def test_a_program_runs_beneath_the_tool_with_an_allocation_a_tensor(tool: Path) -> None:
    ask = [sys.executable, "-c", "import os; print(os.environ['PYTORCH_NO_CUDA_MEMORY_CACHING'])"]
    assert sanitizing.beneath("racecheck", ask) == Report(0, "1\n")
    assert tool.with_suffix(".asked").read_text().startswith("--tool racecheck --error-exitcode 99 --target-processes")
    tool.with_suffix(".finds").touch()
    assert sanitizing.beneath("racecheck", ask).code == FOUND


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = running.outcome(MEMCHECK)
    assert (found["outcome"], found["needs"]) == ("not-run", list(decode.CAPABLE))
    monkeypatch.setattr(decode, "lacks", lambda: "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert running.outcome(MEMCHECK)["why"] == "compute-sanitizer and nvcc not found: install the CUDA toolkit"


def test_every_decode_kernel_runs_beneath_it() -> None:
    touched = named(*sanitizing.CASES)
    assert {one.kernel.name for one in touched if isinstance(one, KernelCase)} == {
        "mxfp4-decode",
        "mxfp4-decode-choosing",
        "mxfp4-decode-padded",
        "mxfp4-gemv",
    }
    assert {one.problem.tokens for one in touched if isinstance(one, KernelCase) if not hasattr(one.problem, "sequences")} == {
        1,
        2,
        4,
        8,
        14,
        16,
    }
    # For few rows, for many, and above 8 tokens there are other instantiations of one kernel, whether a GPU has 48 or 132 multiprocessors.
    dense = [one.problem for one in touched if isinstance(one, KernelCase) and isinstance(one.problem, Linear)]
    for processors in (48, 132):
        blocks = [(-(-one.outputs // 32), one.tokens > 8) for one in dense]
        shapes = {((rows >= processors) + (rows >= 8 * processors), many) for rows, many in blocks}
        assert shapes == {(0, False), (0, True), (1, False), (1, True), (2, False), (2, True)}
    assert all(named(glob) for glob in sanitizing.CASES)
    assert len([one for one in touched if not isinstance(one, KernelCase)]) == 3
    assert all(one.needs == decode.CAPABLE for one in touched)


def test_a_touched_kernel_that_fails_ends_the_process_with_an_error() -> None:
    command = [sys.executable, "-m", "stack.validation.numerics", "touch", "kernels/linear/mxfp4-gemv/qkv/m=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


@pytest.mark.kernels
def test_the_planted_faults_compile(tmp_path: Path, keep: Keep) -> None:
    tools = toolkit.find(cache.root())

    def compiled() -> Measured:
        command = [str(tools.nvcc), "-c", "-arch=sm_80", str(sanitizing._FAULTS), "-o", str(tmp_path / "faults.o")]
        done = subprocess.run(command, capture_output=True, text=True, env=tools.environment, check=True)
        return {"warnings": done.stderr}

    assert keep({"source": sanitizing._FAULTS.read_text(), **keeping.cuda(tools)}, compiled)["warnings"] == ""
