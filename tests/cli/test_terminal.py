# SPDX-License-Identifier: Apache-2.0
"""The command line on a real pseudo-terminal: progress leaves no trace, lines fit, and colours follow the environment."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..carry.world import World
from .conftest import Stack, command, run_apart
from .test_verbs import REBASE

SLOW = """
import sys, time
from stack.cli.common import progress
from stack.cli.output import outlive_readers
import click
outlive_readers()
with progress(lines=True) as tell:
    tell("reading what changed upstream between two releases of a project with a long name", 3, 7)
    time.sleep(0.9)
    click.echo("first")
    time.sleep(0.4)
    tell("merging")
    time.sleep(0.3)
    sys.stdout.write("unfinished ")
    sys.stdout.flush()
    time.sleep(0.4)
    click.echo("line")
    time.sleep(0.3)
click.echo("last")
"""


def on_terminal(
    args: list[str], columns: int, env: Mapping[str, str] | None = None, out: Path | None = None, high: int = 40
) -> tuple[int, str]:
    """Run a program on a pseudo-terminal; return its exit code and all that it wrote there. `out`: a file for stdout."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", high, columns, 0, 0))
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    }
    with (out or Path(os.devnull)).open("wb") as file:
        process = subprocess.Popen(
            args,
            stdin=theirs,
            stdout=theirs if out is None else file,
            stderr=theirs,
            env=inherited | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})},
        )
    os.close(theirs)
    pieces = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux reports a closed terminal like this
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    return process.wait(30), b"".join(pieces).decode()


def screen(written: str) -> list[str]:
    """What stands on an endless screen in the end: only carriage returns, line feeds and the erasure of a line are known."""
    lines, column = [""], 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written)
    for part in re.findall(r"\x1b\[K|\r|\n|[^\x1b\r\n]+", plain):
        if part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif part == "\r":
            column = 0
        elif part == "\n":
            lines.append("")
            column = 0
        else:
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part) :]
            column += len(part)
    assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m|\x1b\[K", "", written)
    return [line.rstrip() for line in lines]


@pytest.mark.parametrize("columns", [20, 60, 80, 120])
def test_progress_leaves_no_trace(columns: int) -> None:
    code, written = on_terminal([sys.executable, "-c", SLOW], columns)
    assert code == 0
    assert screen(written) == ["first", "unfinished line", "last", ""]
    drawn = [part.partition("\x1b[K")[2] for part in written.split("\r") if part.startswith("\x1b[K")]
    shown = [re.sub(r"\x1b.*", "", part) for part in drawn if part.strip()]
    assert any("merging" in line for line in shown)
    assert any("43%" in line for line in shown)
    assert all(len(line) < columns for line in shown if "\n" not in line)
    assert any(re.search(r"0:0\d$", line) for line in shown)
    assert ("between two releases of a project with a long name" in written) == (columns == 120)


def test_nothing_is_drawn_behind_an_unfinished_line() -> None:
    _, written = on_terminal([sys.executable, "-c", SLOW], 80)
    between = written.partition("unfinished ")[2].partition("line")[0]
    assert between == ""


def test_what_is_printed_goes_to_its_file_while_the_terminal_shows_progress(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, written = on_terminal([sys.executable, "-c", SLOW], 80, out=out)
    assert (code, out.read_text()) == (0, "first\nunfinished line\nlast\n")
    assert screen(written) == [""]
    assert "merging" in written


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_cannot_erase_gets_no_line(env: dict[str, str]) -> None:
    _, written = on_terminal([sys.executable, "-c", SLOW.replace("0.9", "3.3")], 80, env)
    assert "\x1b" not in written
    assert "stack: reading what changed upstream between" in written


def test_ascii() -> None:
    _, written = on_terminal([sys.executable, "-c", SLOW], 80, {"PYTHONIOENCODING": "ascii"})
    assert written.isascii()
    assert "merging" in written


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_verbs_fit(world: World, columns: int) -> None:
    for args in ((*REBASE, "--dry-run"), ("status",), ("show", "tool"), ("log",)):
        code, written = on_terminal(command(world, *args), columns)
        assert code == 0, written
        shown = screen(written)
        assert [line for line in shown if len(line) > columns] == []
        assert shown[0]


@pytest.mark.parametrize(
    ("env", "coloured"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        ({"CLICOLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
    ],
)
def test_colours_on_a_terminal(world: World, env: dict[str, str], coloured: bool) -> None:
    _, written = on_terminal(command(world, "status"), 80, env)
    assert ("\x1b[" in written) is coloured


@pytest.mark.parametrize(("env", "coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"CLICOLOR_FORCE": "1"}, True)])
def test_colours_in_a_pipe(world: World, env: dict[str, str], coloured: bool) -> None:
    assert ("\x1b[" in run_apart(world, "status", env=env).out) is coloured


def test_signs_that_an_encoding_lacks_are_spelled() -> None:
    code = "from stack.cli.output import outlive_readers\noutlive_readers()\nprint('\\u2192 \\xfc \\u2026 \\u2713 \\u4e16')"
    env = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)
    assert done.stdout.decode("latin-1") == "-> \xfc ... ok \\u4e16\n"


def test_quiet(stack: Stack) -> None:
    assert "clean" not in stack(*REBASE, "--dry-run", "-q").out.partition("\n")[2]
    assert "clean" in stack(*REBASE, "--dry-run").out.partition("\n")[2], "the next command starts anew"


def test_a_log(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "log"
    assert stack(*REBASE, "--dry-run", "--log", file).code == 0
    assert stack("log", "--log", file).code == 0
    lines = [line.partition(" ")[2] for line in file.read_text().splitlines()]
    assert lines[0].startswith("$ stack --root ")
    assert any(line.startswith("reading what changed upstream") for line in lines)
    assert lines.count("exit code 0") == 2
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}", line) for line in file.read_text().splitlines())
    assert stack("status", "--log", tmp_path / "none/log").code == 2


@pytest.mark.parametrize("verb", [("doctor",), ("serve",)])
def test_the_options_before_a_verb_that_has_its_own(stack: Stack, tmp_path: Path, verb: tuple[str, ...]) -> None:
    assert "-q" in stack(*verb, "--help").out
