# SPDX-License-Identifier: Apache-2.0
"""The decode kernels beneath compute-sanitizer: nothing beyond its memory, no races in shared memory, nothing read that nobody wrote.

Each tool has to find a fault that is planted for it (faults.cu) in the same run: one that does not see this GPU would find nothing.
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
"""The exit code that the tool is asked for where it finds something."""
CASES = (
    "kernels/moe/mxfp4-decode/experts=8*",
    "kernels/moe/mxfp4-decode-choosing/*",
    "kernels/moe/mxfp4-decode-padded/experts=8*",
    "kernels/linear/mxfp4-gemv/qkv/m=[1-9]*",
    "kernels/linear/mxfp4-gemv/o/m=[1-9]*",
    "kernels/linear/mxfp4-gemv/rows=*/m=[1-9]*",
    "kernels/formats/mxfp4-*/gpu",
)
"""What runs beneath it: all kernels, without the largest weights, which would only take longer to make; for few rows and for many
mxfp4_gemv has other instantiations."""
_FAULTS = Path(__file__).with_name("faults.cu")
_PROGRAM = "compute-sanitizer"
_LONGEST = 3
"""Lines of a tool's report that are told."""


@dataclass(frozen=True, slots=True)
class Sanitized:
    """All decode kernels beneath one tool."""

    name: str
    tool: str
    needs = decode.CAPABLE
    seconds = 1800.0
    alone = False


@dataclass(frozen=True, slots=True)
class Report:
    """How a program ended beneath a tool, and what the tool said."""

    code: int
    said: str

    @property
    def errors(self) -> int:
        """How many errors the tool found, one at least where it says by its exit code that there are any."""
        counted = sum(int(number) for number in re.findall(r"SUMMARY: .*?(\d+) errors?\b", self.said))
        return max(1, counted) if self.code == FOUND else 0

    def lines(self) -> str:
        """The first lines of what the tool found."""
        mine = [line.strip("= ") for line in self.said.splitlines() if line.startswith("=========")]
        return (
            "; ".join([line for line in mine if line and _PROGRAM.upper() not in line][:_LONGEST]) or self.said.strip()[-300:]
        )


def declared() -> tuple[Sanitized, ...]:
    """A case a tool."""
    return tuple(Sanitized(f"kernels/sanitizer/{tool}", tool) for tool in TOOLS)


def lacks() -> str:
    """Why it cannot be done here, or nothing."""
    absent = [name for name in (_PROGRAM, "nvcc") if _program(name) is None]
    return decode.lacks() or (f"{' and '.join(absent)} not found: install the CUDA toolkit" if absent else "")


def run(case: Sanitized) -> tuple[Report, Report]:
    """How the planted fault ended beneath the tool, and how the kernels did."""
    with tempfile.TemporaryDirectory(prefix="stack-faults-") as folder:
        faults = Path(folder) / "faults"
        subprocess.run([str(_program("nvcc")), "-o", str(faults), str(_FAULTS)], check=True, capture_output=True)
        planted = beneath(case.tool, [str(faults), case.tool])
    return planted, beneath(case.tool, [sys.executable, "-m", "stack.validation.numerics", "touch", *CASES])


def beneath(tool: str, command: Sequence[str]) -> Report:
    """Run a program beneath a tool."""
    # One allocation a tensor, so that what lies behind it is nobody's; compilers that the program starts are not watched.
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
    """What is wrong, or nothing."""
    if planted.code != FOUND:
        return f"the check proves nothing, the planted fault ended with {planted.code}: {planted.lines()}"
    if kernels.code == FOUND:
        return f"errors: {kernels.errors}: {kernels.lines()}"
    return f"the kernels ended with {kernels.code}: {kernels.lines()}" if kernels.code else ""


def _program(name: str) -> str | None:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return shutil.which(name) or shutil.which(name, path=str(home / "bin"))
