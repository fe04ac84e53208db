# SPDX-License-Identifier: Apache-2.0
"""Watch the GPU's clock while a server is measured: only under load does a clock say whether the power supply is right."""

import shutil
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from stack.owner.readiness import gpu
from stack.owner.readiness.gpu import Clocks

_EVERY = 2.0
"""Seconds between two looks."""
_BUSY = 50.0
"""Percent of load from which a look counts."""


@dataclass(slots=True)
class ClockWatch:
    """The states of the first GPU that were seen so far."""

    seen: list[Clocks] = field(default_factory=list)

    def under_load(self) -> Clocks | None:
        """Return the middle of what was seen under load, with all reasons that held the clock back; None if nothing was."""
        busy = [each for each in self.seen if (each.busy or 0) >= _BUSY and each.now is not None]
        if not busy:
            return None
        reasons = 0
        for each in busy:
            reasons |= each.reasons
        middle = sorted(busy, key=lambda each: each.now or 0)[len(busy) // 2]
        powers = [each.power for each in busy if each.power is not None]
        return replace(middle, reasons=reasons, power=statistics.median(powers) if powers else None)


@contextmanager
def watching(every: float = _EVERY) -> Iterator[ClockWatch]:
    """Look at the first GPU from time to time while the block runs; nothing is seen without a driver."""
    watch, over = ClockWatch(), threading.Event()

    def look() -> None:
        while not over.is_set():
            watch.seen.extend([*gpu.clocks()][:1])
            over.wait(every)

    thread = threading.Thread(target=look, daemon=True)
    if shutil.which("nvidia-smi") is not None:
        thread.start()
    try:
        yield watch
    finally:
        over.set()
        if thread.is_alive():
            thread.join()
