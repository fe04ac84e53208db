# SPDX-License-Identifier: Apache-2.0
"""Run a server while its owner lives: `python parent_watchdog.py COMMAND…`, with a pipe from the owner as its input.

When the pipe ends (because the owner closed it, or died) the server's whole process group gets SIGTERM, and later SIGKILL.
Otherwise an engine whose front end was killed would live on, with all its memory.
"""

import os
import select
import signal
import subprocess
import sys
import time

PATIENCE = 20.0
"""Seconds that a server has to end after a signal."""


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
