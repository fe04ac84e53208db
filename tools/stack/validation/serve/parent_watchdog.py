# SPDX-License-Identifier: Apache-2.0
"""Run a server while its owner lives: `python parent_watchdog.py COMMAND…`, with a pipe from the owner as its input.

When the pipe ends (because the owner closed it, or died) the server's whole process group gets SIGTERM, and later SIGKILL.
Otherwise an engine whose front end was killed would live on, with all its memory. It runs without importing `stack`.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PATIENCE = 20.0
"""Seconds that a server has to end after a signal."""


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
    watchdog = subprocess.Popen(
        [sys.executable, __file__, *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the server
    )
    assert watchdog.stdin is not None
    try:
        yield watchdog
    finally:
        watchdog.stdin.close()
        watchdog.wait()


def main(command: list[str]) -> int:
    """Run the command until it or its owner ends; return the command's exit code."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    ended = os.pidfd_open(server.pid)
    select.select([sys.stdin, ended], [], [])
    for kind in (signal.SIGTERM, signal.SIGKILL):
        _end(server, kind)
    return server.wait()


def _end(server: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    """Send a signal to all of the server's processes, and wait until they end."""
    until = time.monotonic() + PATIENCE
    alive = _signalled(server.pid, kind)
    while alive and time.monotonic() < until:
        server.poll()  # reap it: a zombie would count as alive
        time.sleep(0.05)
        alive = _signalled(server.pid, 0)


def _signalled(group: int, kind: int) -> bool:
    """Send a signal to a process group; return whether it has a process."""
    try:
        os.killpg(group, kind)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
