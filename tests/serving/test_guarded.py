# SPDX-License-Identifier: Apache-2.0
"""A container's guard: it kills the server and all its processes, says why, and waits; signals and exit codes pass through."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.serving.guarded import SIGN

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}


@contextmanager
def guarded(keep: str, *command: str) -> Iterator["subprocess.Popen[str]"]:
    words = [sys.executable, "-P", "-m", "stack.serving.guarded", keep, *command]
    with subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_it_kills_all_processes_of_the_server_and_waits() -> None:
    with guarded("9000", "sh", "-c", "sleep 600 & echo $!; trap '' TERM; wait; sleep 600") as process:
        assert process.stdout is not None and process.stderr is not None
        child = int(process.stdout.readline())
        line = process.stderr.readline()
        assert line.startswith(SIGN) and "less than the 9000 GB of --keep-free" in line
        end = time.monotonic() + 10
        while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
            assert time.monotonic() < end
        with pytest.raises(subprocess.TimeoutExpired):  # a container that ended would be started again
            process.wait(timeout=1.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_exit_codes_pass_through(script: str, code: int) -> None:
    with guarded("0.001", "sh", "-c", script) as process:
        assert process.wait(timeout=30) == code


def test_a_signal_ends_the_server_by_itself() -> None:
    with guarded("0.001", "sh", "-c", "trap 'echo ended; exit 3' TERM; echo ready; while :; do sleep 0.05; done") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ended\n"
        assert process.wait(timeout=10) == 3


@pytest.mark.parametrize("words", [("nan", "true"), ("0", "true"), ("x", "true"), ("8",)])
def test_what_is_no_amount(words: tuple[str, ...]) -> None:
    with guarded(*words) as process:
        assert process.wait(timeout=30) == 2
        assert process.stderr is not None and process.stderr.read().startswith("stack: STACK_KEEP_FREE is ")


def test_a_command_that_is_missing() -> None:
    with guarded("8", "/of-nobody") as process:
        assert process.wait(timeout=30) == 127


@pytest.mark.parametrize(("keep", "output"), [("9000", ""), ("0", "served\n"), (None, "served\n")])
def test_the_entry_point(tmp_path: Path, keep: str | None, output: str) -> None:
    """The image's own script starts it, if an amount is set."""
    program = tmp_path / "bin/stack"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "bin/python").symlink_to(sys.executable)
    variables = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "PYTHONPATH": str(ROOT / "tools"), "STACK_PACKAGES": ""}
    variables |= {} if keep is None else {"STACK_KEEP_FREE": keep}
    with subprocess.Popen(
        ["sh", str(ROOT / "docker/entrypoint.sh"), "sh", "-c", "sleep 3; echo served"],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        if keep == "9000":
            assert process.stderr.readline().startswith(SIGN)
            process.terminate()
        assert (process.wait(timeout=30), process.stdout.read()) == (0, output)
