# SPDX-License-Identifier: Apache-2.0
"""Programs from the package index for making images, in their own environment in the cache."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.proof import environment

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def folder(cache: Path, tell: Progress) -> Path:
    """Return the folder of the programs, installing them on the first call.

    Raises:
        StackError: pip could not install a package.

    """
    step = "installing uv and makers of bills of materials (100 MB)"
    return environment.listed(cache, "images", _REQUIREMENTS, step, tell).parent


def run(program: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run a program, and return its output.

    Raises:
        StackError: it failed; the message has its first error line.

    """
    done = subprocess.run(
        [str(program), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        error = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no message")
        raise StackError(
            f"{program.name} failed: {' '.join([error, *_after(lines, error)])[:600]}", "check the network and the index"
        )
    return done.stdout


def _after(lines: list[str], first: str) -> list[str]:
    return lines[lines.index(first) + 1 :] if first in lines else []
