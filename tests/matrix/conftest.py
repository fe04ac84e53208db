# SPDX-License-Identifier: Apache-2.0
"""A small stack whose series have proofs that are commands: quick ones, and one that waits until it is let go."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..carry.world import World, home, template, world
from ..cli.conftest import SCRIPT, Stack, stack

__all__ = ["home", "stack", "template", "world"]

PROOFS = ("matrix", "run", "--only", "proofs", "--json")
QUICK = """
proves = [{ run = "grep -q hook gamma/main.py", patches = ["gamma/hook-main.patch"] }]
"""
WAITS = """
proves = [{{ run = '''echo $$ >> "{root}/pids"; until test -e "{root}/go"; do sleep 0.05; done; \
grep -q limit, gamma/main.py''', patches = ["gamma/fix-limit.patch"] }}]
"""


@dataclass(frozen=True, slots=True)
class Proved:
    """The stack, and what to do with it."""

    world: World
    run: Stack

    def write(self, series: str, lines: str) -> None:
        """Put keys at the top of a series' file."""
        file = self.world.root / f"stacks/{series}/series.toml"
        file.write_text(lines + file.read_text())

    def go(self) -> None:
        """Let the proof that waits go on."""
        (self.world.root / "go").touch()

    def pids(self) -> list[int]:
        """The shells in which that proof ran."""
        file = self.world.root / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def start(self, *args: str) -> "subprocess.Popen[str]":
        """Start `stack ARGS` in a process of its own."""
        command = [sys.executable, "-c", SCRIPT, "--root", str(self.world.root), "--cache", str(self.world.cache), *args]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def results(self) -> list[Path]:
        """The kept results of jobs."""
        return sorted((self.world.cache / "results/matrix").glob("*.json"))


@pytest.fixture
def proved(world: World, stack: Stack) -> Proved:
    """The stack of two series, each with a proof."""
    made = Proved(world, stack)
    made.write("one", QUICK)
    made.write("two", WAITS.format(root=world.root))  # a job on another machine has another STACK_ROOT
    return made


def states(document: dict[str, Any]) -> dict[str, str]:
    """How each job of a document ended."""
    return {job["name"]: job["state"] for job in document["jobs"]}


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
