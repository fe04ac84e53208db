# SPDX-License-Identifier: Apache-2.0
"""Run a server while its owner lives: `python parent_watchdog.py REPORT COMMAND…`, with a pipe from the owner as its input.

When the pipe ends (because the owner closed it, or died) the server's whole process group gets SIGTERM, and later SIGKILL.
Otherwise an engine whose front end was killed would live on, with all its memory. A byte in the pipe asks for SIGKILL at once. It runs
without importing `stack`.

REPORT is the descriptor of a second pipe. The server writes the id of its process group there before it becomes COMMAND. If the
watchdog itself is killed, the owner ends that group; if both are killed, the kernel sends the server SIGTERM.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PATIENCE = 20.0
"""Seconds that a server has to end after a signal."""
_AT_ONCE = b"!"
"""The owner writes this into the pipe to have the server killed without asking it to end first."""
_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when its parent ends."""


@contextmanager
def kept(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int, folder: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command for the duration of the block. It and its children are ended afterwards, even if this process is killed.

    Args:
        command: the program and its arguments.
        environment: all of its variables.
        output: receives its stdout and stderr.
        folder: its working folder.

    """
    read, write = os.pipe()
    with os.fdopen(read, "rb") as report, os.fdopen(write, "wb") as reporter:
        watchdog = _watchdog(command, environment, output, folder, reporter.fileno())
        reporter.close()
        assert watchdog.stdin is not None
        try:
            yield watchdog
        finally:
            watchdog.stdin.close()
            if watchdog.wait() < 0:  # a signal killed the watchdog before it could end the server
                _end_reported(report)


def kill(watchdog: "subprocess.Popen[bytes]") -> None:
    """Have a server killed at once (SIGKILL): asking it to end takes time that a machine without memory does not have."""
    assert watchdog.stdin is not None
    with contextlib.suppress(OSError, ValueError):  # it has ended, or is ending
        os.write(watchdog.stdin.fileno(), _AT_ONCE)


def _watchdog(
    command: Sequence[str], environment: Mapping[str, str], output: IO[bytes] | int, folder: Path, report: int
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, __file__, str(report), *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the server
        pass_fds=(report,),
    )


def _end_reported(report: IO[bytes]) -> None:
    """End the server whose watchdog was killed. The report is complete: the server closed its copy when it became COMMAND."""
    with contextlib.suppress(ValueError):  # the watchdog was killed before it started a server
        group = int(report.read(20))
        for kind in (signal.SIGTERM, signal.SIGKILL):
            _end(group, kind)


def main(report: int, command: list[str]) -> int:
    """Run the command until it or its owner ends; return the command's exit code."""
    system, watchdog = ctypes.CDLL(None), os.getpid()

    def begin() -> None:
        """Run in the server's process before COMMAND: report its group, and end with the watchdog."""
        os.write(report, str(os.getpid()).encode())
        system.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != watchdog:  # it was killed before prctl could watch it
            os.kill(os.getpid(), signal.SIGTERM)

    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=begin,  # noqa: PLW1509  # this process has one thread
    )
    os.close(report)
    ended = os.pidfd_open(server.pid)
    ready, _, _ = select.select([sys.stdin, ended], [], [])
    at_once = sys.stdin in ready and os.read(sys.stdin.fileno(), 1) == _AT_ONCE
    for kind in (signal.SIGKILL,) if at_once else (signal.SIGTERM, signal.SIGKILL):
        _end(server.pid, kind, server.poll)  # reap it: a zombie would count as alive
    return server.wait()


def _end(group: int, kind: signal.Signals, reap: Callable[[], object] = lambda: None) -> None:
    """Send a signal to all processes of a group, and wait until they end."""
    until = time.monotonic() + PATIENCE
    alive = _signalled(group, kind)
    while alive and time.monotonic() < until:
        reap()
        time.sleep(0.05)
        alive = _signalled(group, 0)


def _signalled(group: int, kind: int) -> bool:
    """Send a signal to a process group; return whether it has a process."""
    try:
        os.killpg(group, kind)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
