# SPDX-License-Identifier: Apache-2.0
"""Run the decode kernels under compute-sanitizer: memcheck, racecheck and initcheck.

In the same run each tool must find a fault that is planted for it (faults.cu): a tool that does not support this GPU finds nothing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.validation.numerics.kernels import decode

TOOLS = ("memcheck", "racecheck", "initcheck")
FOUND = 99
"""The exit code that the tool returns if it finds an error."""
CASES = (
    "kernels/moe/mxfp4-decode/experts=8*",
    "kernels/moe/mxfp4-decode-choosing/*",
    "kernels/moe/mxfp4-decode-padded/experts=8*",
    "kernels/linear/mxfp4-gemv/qkv/m=[1-9]*",
    "kernels/linear/mxfp4-gemv/o/m=[1-9]*",
    "kernels/linear/mxfp4-gemv/rows=*/m=[1-9]*",
    "kernels/formats/mxfp4-*/gpu",
)
"""The cases to run: all kernels, but without the largest weights, which take long to make. mxfp4_gemv has one instantiation for few rows
and one for many."""
_FAULTS = Path(__file__).with_name("faults.cu")
_PROGRAM = "compute-sanitizer"
_LONGEST = 3
"""Lines of a tool's report that are shown."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """All decode kernels under one tool."""

    name: str
    tool: str
    needs = decode.CAPABLE
    seconds = 1800.0
    alone = False


@dataclass(frozen=True, slots=True)
class Report:
    """The exit code of a program under a tool, and its output with the tool's report."""

    code: int
    output: str

    @property
    def errors(self) -> int:
        """Number of errors that the tool found; at least one if its exit code says that there are any."""
        counted = sum(int(number) for number in re.findall(r"SUMMARY: .*?(\d+) errors?\b", self.output))
        return max(1, counted) if self.code == FOUND else 0

    def lines(self) -> str:
        """Return the first lines of the tool's report."""
        mine = [line.strip("= ") for line in self.output.splitlines() if line.startswith("=========")]
        return (
            "; ".join([line for line in mine if line and _PROGRAM.upper() not in line][:_LONGEST]) or self.output.strip()[-300:]
        )


def declared() -> tuple[Sanitized, ...]:
    """List one case per tool."""
    return tuple(Sanitized(f"kernels/sanitizer/{tool}", tool) for tool in TOOLS)


def lacks() -> str:
    """Return why the tools cannot run on this machine; empty if they can."""
    absent = [name for name in (_PROGRAM, "nvcc") if _program(name) is None]
    return decode.lacks() or (f"{' and '.join(absent)} not found: install the CUDA toolkit" if absent else "")


def run(case: Sanitized) -> tuple[Report, Report]:
    """Run the planted fault and the kernels under the tool; return both reports."""
    with tempfile.TemporaryDirectory(prefix="stack-faults-") as folder:
        faults = Path(folder) / "faults"
        subprocess.run([str(_program("nvcc")), "-o", str(faults), str(_FAULTS)], check=True, capture_output=True)
        planted = beneath(case.tool, [str(faults), case.tool])
    return planted, beneath(case.tool, [sys.executable, "-m", "stack.validation.numerics", "touch", *CASES])


def beneath(tool: str, command: Sequence[str]) -> Report:
    """Run a program under a tool."""
    # One allocation per tensor, so that accesses beyond it are found. Compilers that the program starts are not watched.
    variables: Mapping[str, str] = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    options = ["--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "application-only"]
    done = subprocess.run(
        [str(_program(_PROGRAM)), *options, *command],
        env=variables,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return Report(done.returncode, done.stdout + done.stderr)


def why(planted: Report, kernels: Report) -> str:
    """Say what is wrong; empty if nothing is."""
    if planted.code != FOUND:
        return f"the check proves nothing, the planted fault ended with {planted.code}: {planted.lines()}"
    if kernels.code == FOUND:
        return f"errors: {kernels.errors}: {kernels.lines()}"
    return f"the kernels ended with {kernels.code}: {kernels.lines()}" if kernels.code else ""


def _program(name: str) -> str | None:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return shutil.which(name) or shutil.which(name, path=str(home / "bin"))
