# SPDX-License-Identifier: Apache-2.0
"""A small stack whose series have proofs that are commands: quick ones, and one that waits until it is let go."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..carry.world import World, home, template, world
from ..cli.conftest import SCRIPT, Stack, stack

__all__ = ["home", "stack", "template", "world"]

QUICK = """
proves = [{ run = "grep -q hook gamma/main.py", patches = ["gamma/hook-main.patch"] }]
"""
WAITS = """
proves = [{ run = '''echo $$ >> "$STACK_ROOT/pids"; until test -e "$STACK_ROOT/go"; do sleep 0.05; done; \
grep -q limit, gamma/main.py''', patches = ["gamma/fix-limit.patch"] }]
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
    made.write("two", WAITS)
    return made
