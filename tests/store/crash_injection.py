# SPDX-License-Identifier: Apache-2.0
"""Children that die by SIGKILL at some moment of their work; for scripts that run in a Python of their own, since they fork."""

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

Work = Callable[[], object]


def counted(work: Work, within: str, limit: int = 0) -> int:
    """Do some work here; how many functions it calls whose files have `within` in their paths. Dies at call number `limit`."""
    calls = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and within in frame.f_code.co_filename:
            calls += 1
            if calls == limit:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    work()
    sys.setprofile(None)
    return calls


def at_call(work: Work, within: str, limit: int) -> bool:
    """Do some work in a child that dies at call number `limit`; whether it did."""
    _, status = os.waitpid(_child(lambda: counted(work, within, limit)), 0)
    return os.WIFSIGNALED(status)


def at_time(work: Work, seconds: float, *, together: bool) -> None:
    """Do some work in a child that dies after so long; `together` with what it has started."""
    pid = _child(work)
    time.sleep(seconds)
    if together:
        os.killpg(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _child(work: Work) -> int:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        try:
            work()
        finally:
            os._exit(0)
    return pid
