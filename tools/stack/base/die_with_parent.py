# SPDX-License-Identifier: Apache-2.0
"""A program that ends, with all that it has started, when what started it does: `python attached.py PARENT PROGRAM [ARGUMENT]...`.

PARENT is the id of the process that starts it; `-` where that is not known yet: whoever started it.

pip, CMake and ninja each start others, ninja in process groups of their own, and none of them ends when its parent is killed. This
process takes in what loses its parent (prctl(2), PR_SET_CHILD_SUBREAPER), so it finds them all. It runs by itself, without `stack`.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PATIENCE = 5.0
"""Seconds for what a program leaves to end: podman's containers are cleaned up behind it."""


def main() -> int:
    """Run the program; its exit status, as a shell would state it."""
    parent, command = sys.argv[1], sys.argv[2:]
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, lambda *_: None)  # from a terminal it reaches the program, too, which ends by itself
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    system.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent not in ("-", str(os.getppid())):  # it ended before it was asked for
        return 128 + signal.SIGTERM
    try:
        code = subprocess.Popen(command).wait()
    except OSError as bad:
        print(f"{command[0]}: {bad.strerror}", file=sys.stderr)
        return 127
    _outlive(_PATIENCE)
    return code if code >= 0 else 128 - code


def _end(_number: int, _frame: FrameType | None) -> None:
    _kill()
    os._exit(128 + signal.SIGTERM)


def _outlive(patience: float) -> None:
    """Wait for what the program has left, and kill it then: a program that is killed leaves all that it has started."""
    until = time.monotonic() + patience
    while _children() and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
    _kill()


def _kill() -> None:
    """Kill all that is below this process; what loses its parent by that comes here, and is next."""
    while below := _children():
        for one in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        for one in below:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(one, 0)


def _children() -> list[int]:
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # The name before the last parenthesis may hold anything; behind it: state, parent.
            if int(file.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(file.parent.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
