# SPDX-License-Identifier: Apache-2.0
"""Run a container's server, and kill it before the machine runs out of memory: `python -m stack.serving.guarded GB COMMAND…`.

The image's entry point starts it for STACK_KEEP_FREE. In a container, /proc/meminfo and /proc/pressure are the machine's own.

After it has killed the server, it stays: an engine starts a container that has ended again, into the same freeze. The last line of the log
then says why the server was killed. Stopping or restarting the container ends it, so that a reboot starts the server again.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

from stack.deploy import available_memory
from stack.deploy.available_memory import Sample
from stack.serving import memory_guard
from stack.serving.memory_guard import MemoryGuard

SIGN = "stack: memory: "
"""The beginning of the log's line about a server that was killed for its memory."""
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT)


class _Signals:
    """Passes signals on to the server's process group, and remembers that this process was asked to end."""

    def __init__(self) -> None:
        self.ending = threading.Event()
        self.group: int | None = None
        for each in _PASSED_ON:
            signal.signal(each, self._take)

    def _take(self, number: int, _: FrameType | None) -> None:
        if number in _ENDING:
            self.ending.set()
        if self.group is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.group, number)


def run(
    keep: int,
    command: Sequence[str],
    look: Callable[[], Sample] = available_memory.sample,
    pause: float = memory_guard.PAUSE,
) -> int:
    """Run a command until it ends; return its exit code, as a shell does. `keep`: the bytes to keep free.

    If it was killed for its memory, wait until this process is asked to end, and return 0.

    Raises:
        StackError: The kernel does not say how much memory is left.

    """
    signals, guard = _Signals(), MemoryGuard(keep, look, pause)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    signals.group = server.pid
    if signals.ending.is_set():  # by a signal before the server was there
        os.killpg(server.pid, signal.SIGTERM)
    with guard.watching(lambda: os.killpg(server.pid, signal.SIGKILL)):
        code = _reaped(server.pid)
    signals.group = None
    if guard.reason is None:
        return code
    print(f"{SIGN}{guard.reason}", file=sys.stderr, flush=True)
    while not signals.ending.wait(pause):
        pass
    return 0


def _reaped(server: int) -> int:
    """Wait for the server; also for orphans that the kernel hands to this process if it is the container's first."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def main(words: Sequence[str]) -> int:
    """Read the arguments; return the exit code."""
    amount, *command = words or [""]
    try:
        keep = float(amount)
    except ValueError:
        keep = -1.0
    if not 0 < keep < 10**6 or not command:  # NaN is not in any range
        print(f"stack: STACK_KEEP_FREE is {amount!r:.40}: write a number of GB above 0", file=sys.stderr)
        return 2
    try:
        return run(round(keep * 1e9), command)
    except OSError as failed:
        print(f"stack: {command[0]}: {failed.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
