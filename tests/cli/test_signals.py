# SPDX-License-Identifier: Apache-2.0
"""A command cleans up when a signal ends it, whichever it is; a second Ctrl-C does not wait."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENT = 60.0
# A command that waits for ever, then cleans up for some seconds; files show how far it is.
SCRIPT = """
import sys, time
from pathlib import Path
from stack.cli import main, status
place, seconds = Path(sys.argv[1]), float(sys.argv[2])
def waits(*args, **options):
    try:
        (place / "begun").touch()
        time.sleep(600)
    finally:
        (place / "cleaning").touch()
        time.sleep(seconds)
        (place / "cleaned").touch()
status.command.callback = waits
sys.argv = ["stack", "status"]
main()
"""


def started(place: Path, cleaning: float, **options: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SCRIPT, str(place), str(cleaning)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]
    wait_for(place / "begun", process)
    return process


def wait_for(file: Path, process: "subprocess.Popen[str]") -> None:
    ends = time.monotonic() + PATIENT
    while not file.exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.01)
    assert file.exists(), process.poll()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGHUP, 128 + signal.SIGHUP)]
)
def test_each_signal_lets_a_command_clean_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    process = started(tmp_path, 0.0)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENT)
    assert process.returncode == code
    assert (tmp_path / "cleaned").exists()
    assert [line for line in err.splitlines() if line] == ["stack: interrupted: the stack is whole, run the command again"]


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    process = started(tmp_path, 600.0)
    process.send_signal(signal.SIGTERM)
    wait_for(tmp_path / "cleaning", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENT)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert not (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_comes_twice_does_not_cut_the_cleaning_short(tmp_path: Path, number: signal.Signals) -> None:
    """`timeout` signals the process and its group."""
    process = started(tmp_path, 1.0)
    process.send_signal(number)
    wait_for(tmp_path / "cleaning", process)
    process.send_signal(number)
    process.communicate(timeout=PATIENT)
    assert process.returncode == 128 + number
    assert (tmp_path / "cleaned").exists()


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As beneath nohup."""
    process = started(tmp_path, 0.0, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENT)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_terminal_that_is_hung_up(tmp_path: Path) -> None:
    """There is nobody left to tell, and all the same it cleans up."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "0.5"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, text=True, start_new_session=True)
    os.close(theirs)
    wait_for(tmp_path / "begun", process)
    process.send_signal(signal.SIGHUP)
    wait_for(tmp_path / "cleaning", process)
    os.close(ours)
    assert process.wait(timeout=PATIENT) == 128 + signal.SIGHUP
    assert (tmp_path / "cleaned").exists()
