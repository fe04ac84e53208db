# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: each lets it clean up like Ctrl-C; a second Ctrl-C ends it at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals received so far."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.first: int | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of an interrupted command: 130 after Ctrl-C."""
        return 128 + (self.first or signal.SIGINT)

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Interrupt the command; the second Ctrl-C ends the process at once."""
        if os.getpid() != self._process:  # a forked child has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self.first is None:
            self.first = number
            raise KeyboardInterrupt
        elif number == signal.SIGINT:
            # Ignore a second SIGTERM: `timeout` sends it to the process and to its group at the same time.
            os._exit(128 + signal.SIGINT)


@contextlib.contextmanager
def interrupting() -> Iterator[Interrupts]:
    """Make SIGTERM and SIGHUP act like Ctrl-C while the block runs; after a signal, the handlers stay for good.

    Signals that the caller ignores stay ignored: SIGHUP under nohup, SIGINT in a shell's background job.
    """
    taken = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield taken
        return
    heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, taken.take) for number in heeded}
    try:
        yield taken
    finally:
        # An interrupted process may still wait for threads and exit handlers, so a second Ctrl-C must still work.
        if taken.first is None:
            for number, handler in before.items():
                signal.signal(number, handler)
