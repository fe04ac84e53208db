# SPDX-License-Identifier: Apache-2.0
"""Keeps a server for as long as its owner lives: `python keeper.py COMMAND…`, with a pipe from the owner as its input.

When the pipe ends (the owner closed it, or died of whatever) the server's whole process group is ended, politely, then not.
An engine whose front end is killed lives on otherwise, with all its memory.
"""

import os
import select
import signal
import subprocess
import sys
import time

PATIENCE = 20.0
"""Seconds for a server to end by itself."""


def main(command: list[str]) -> int:
    """Run the command until it ends, or until the owner is gone; the exit code is the command's."""
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    ended = os.pidfd_open(server.pid)
    select.select([sys.stdin, ended], [], [])
    for kind in (signal.SIGTERM, signal.SIGKILL):
        _end(server, kind)
    return server.wait()


def _end(server: subprocess.Popen[bytes], kind: signal.Signals) -> None:
    """Send a signal to all of the server's processes, and wait for them."""
    until = time.monotonic() + PATIENCE
    there = _signalled(server.pid, kind)
    while there and time.monotonic() < until:
        server.poll()  # so that it is not there as a zombie
        time.sleep(0.05)
        there = _signalled(server.pid, 0)


def _signalled(group: int, kind: int) -> bool:
    """Whether anybody is in a process group to get a signal."""
    try:
        os.killpg(group, kind)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
