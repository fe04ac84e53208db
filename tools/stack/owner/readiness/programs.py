# SPDX-License-Identifier: Apache-2.0
"""Run the system's own programs and read what they print, bounded in time and size."""

import os
import shutil
import subprocess
from dataclasses import dataclass

_WAIT = 20.0
"""Seconds for a program; the driver of a GPU that was lost hangs."""
_LARGEST = 2**20
"""Characters of output that are kept."""
_FIRST = 200


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a program. `problem` says why it is not usable; `missing`: there is no such program."""

    text: str = ""
    problem: str = ""
    missing: bool = False
    code: int = 0

    @property
    def works(self) -> bool:
        """Whether the program ran and ended with 0."""
        return not self.problem


def run(*command: str, wait: float = _WAIT) -> Output:
    """Run a program in the C locale without any input."""
    if shutil.which(command[0]) is None:
        return Output(problem=f"{command[0]} is not installed", missing=True)
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=wait, env=environment, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return Output(problem=f"{command[0]} has not answered for {wait:.0f} seconds", code=-1)
    except OSError as failed:
        return Output(problem=f"{command[0]} cannot be run ({failed.strerror})", code=-1)
    text, errors = (data.decode("utf-8", "replace")[:_LARGEST] for data in (done.stdout, done.stderr))
    if done.returncode == 0:
        return Output(text)
    return Output(text, _first_line(errors or text) or f"{command[0]} ended with {done.returncode}", code=done.returncode)


def _first_line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return "".join(letter if letter.isprintable() else "?" for letter in first)[:_FIRST]
