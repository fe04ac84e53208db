# SPDX-License-Identifier: Apache-2.0
"""Signals that end a command: each lets it clean up as Ctrl-C does, and a second Ctrl-C does not wait for that."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals that have come so far."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.first: int | None = None

    @property
    def exit_code(self) -> int:
        """Return the exit code of a command that was ended: 130 after Ctrl-C."""
        return 128 + (self.first or signal.SIGINT)

    def take(self, number: int, _frame: FrameType | None) -> None:
        """Interrupt the command; the second Ctrl-C ends the process at once."""
        if os.getpid() != self._process:  # a forked child: it has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif self.first is None:
            self.first = number
            raise KeyboardInterrupt
        elif number == signal.SIGINT:
            # SIGTERM may come twice at once: `timeout` sends it to the process and to its group.
            os._exit(128 + signal.SIGINT)


@contextlib.contextmanager
def interrupting() -> Iterator[Interrupts]:
    """Turn SIGTERM and SIGHUP into what Ctrl-C is, as long as the block runs; beyond it where one has come.

    What the caller ignores stays ignored: SIGHUP beneath nohup, SIGINT in a shell's background.
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
        # While an interrupted process ends, its threads and exit handlers may still wait: a second Ctrl-C has to count.
        if taken.first is None:
            for number, handler in before.items():
                signal.signal(number, handler)
