# SPDX-License-Identifier: Apache-2.0
"""Run a program and kill it with all its descendants when the starting process ends.

usage: `python die_with_parent.py PARENT PROGRAM [ARGUMENT]...`

PARENT is the id of the starting process, or `-` for whichever process that is.

pip, CMake and ninja start children, ninja in process groups of their own, and none of them ends when its parent is killed.
This process is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER): orphaned descendants become its children, so it finds them all.
It runs without importing `stack`.
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
"""Seconds that leftover processes get to end; podman cleans its containers up in one."""


def main() -> int:
    """Run the program; return its exit status in the form that a shell uses."""
    parent, command = sys.argv[1], sys.argv[2:]
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the program, too, which then ends by itself
    with contextlib.suppress(AttributeError):  # Linux only: elsewhere, descendants that leave the process group go on
        system = ctypes.CDLL(None)
        system.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        system.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if parent not in ("-", str(os.getppid())):  # the parent ended before prctl could watch it
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
    """Wait up to `patience` seconds for leftover processes, then kill them; a killed program leaves its own children behind."""
    until = time.monotonic() + patience
    while _children() and time.monotonic() < until:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
    _kill()


def _kill() -> None:
    """Kill all descendants. Killing one makes its children ours, so repeat until there are none."""
    while below := _children():
        for process in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for process in below:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)


def _children() -> list[int]:
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # /proc/PID/stat: the name before the last parenthesis may hold anything; after it stand the state and the parent.
            if int(file.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                children.append(int(file.parent.name))
    return children


if __name__ == "__main__":
    sys.exit(main())
