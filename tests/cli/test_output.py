# SPDX-License-Identifier: Apache-2.0
"""Who reads what a verb prints has no say in what it does, nor in how it ends."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.cli.output import outlive_readers

from ..carry.world import World
from .conftest import Ran, Stack, command


def unread(world: World, *args: object) -> int:
    """The exit code of `stack ARGS` with both streams into a pipe that nobody reads."""
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(command(world, *args), stdout=theirs, stderr=theirs, check=False)
    os.close(theirs)
    return done.returncode


def closed(world: World, *args: object) -> Ran:
    """`stack ARGS` with its standard output closed."""
    shell = ["sh", "-c", '"$@" >&-', "sh", *command(world, *args)]
    done = subprocess.run(shell, stderr=subprocess.PIPE, text=True, check=False)
    return Ran(done.returncode, "", done.stderr)


REBASE = ("rebase", "gamma", "--onto", "v2.1", "--with-required")


def test_a_switch_that_nobody_reads_of_is_one(world: World) -> None:
    assert unread(world, *REBASE) == 0
    assert '"v2.1"' in (world.root / "pins.toml").read_text()


def test_a_switch_with_its_output_closed_is_one(world: World) -> None:
    ran = closed(world, *REBASE)
    assert ran.code == 0, ran
    assert "defect" not in ran.err
    assert '"v2.1"' in (world.root / "pins.toml").read_text()


@pytest.mark.parametrize("args", [("--help",), ("status",), ("status", "--json"), ("recipe", "list")])
def test_what_is_not_read_ends_as_it_ends(world: World, args: tuple[str, ...]) -> None:
    assert unread(world, *args) == closed(world, *args).code == 0


@pytest.mark.parametrize("args", [("status", "--nope"), ("recipe", "show", "nobody")])
def test_an_error_that_is_not_read_is_one(world: World, args: tuple[str, ...]) -> None:
    assert unread(world, *args) == closed(world, *args).code == 2


def test_what_steers_a_terminal_is_spelt(world: World, stack: Stack, tmp_path: Path) -> None:
    said = stack("roofline", "gpt-oss-120b-spark", "--config", tmp_path / "x\x1b[31m.json").refused()
    assert "x\\x1b[31m.json" in said
    series = next(world.root.glob("stacks/*/series.toml"))
    titled = series.read_text().splitlines()
    titled = [r'title = "one\u001b]0;two"' if line.startswith("title") else line for line in titled]
    series.write_text("\n".join(titled) + "\n")
    ran = stack("status")
    assert "\x1b" not in ran.out
    assert "one\\x1b]0;two" in ran.out


def test_what_stands_in_the_place_of_a_stream_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(io.TextIOWrapper):
        pass

    for own in (Own(io.BytesIO()), io.StringIO()):
        monkeypatch.setattr(sys, "stdout", own)
        outlive_readers()
        assert sys.stdout is own
