# SPDX-License-Identifier: Apache-2.0
"""Programs from the package index that make images, in an environment of their own in the cache."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from stack.base.errors import StackError
from stack.proof import environment

_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def folder(cache: Path, tell: Callable[[str], None]) -> Path:
    """The folder of the programs; made on the first call.

    Raises:
        StackError: pip could not install something.

    """
    step = "installing uv and makers of bills of materials (100 MB)"
    return environment.listed(cache, "images", _REQUIREMENTS, step, tell).parent


def run(program: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    """What a program says.

    Raises:
        StackError: it failed; with the first line of what it calls an error.

    """
    done = subprocess.run(
        [str(program), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=env
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")
        raise StackError(
            f"{program.name} failed: {' '.join([said, *_after(lines, said)])[:600]}", "check the network and the index"
        )
    return done.stdout


def _after(lines: list[str], first: str) -> list[str]:
    return lines[lines.index(first) + 1 :] if first in lines else []
