# SPDX-License-Identifier: Apache-2.0
"""End a server before the machine runs out of the memory that CPU and GPU share, since such a machine freezes and has to be restarted.

A start of vLLM took a DGX Spark from 23.8 to 10.6 GiB in three seconds (vllm-project/vllm issue 56824): a look each second is often enough
for some GB, and the server is killed, not asked to end.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

from stack.base.errors import StackError
from stack.deploy import available_memory, hardware
from stack.deploy.available_memory import Sample
from stack.deploy.recipes import Recipe

UNIFIED = 8.0
"""GB to keep free where CPU and GPU share the memory: a start took 13 GiB within three seconds (vllm-project/vllm issue 56824)."""
PAUSE = 1.0
"""Seconds between two looks."""
STALLED = 20.0
"""Percent of ten seconds in which every process waited for memory: two seconds of standstill. systemd-oomd's default is 60 for 30 seconds
(oomd.conf), which is later than a Spark without swap lasts."""


def default(recipe: Recipe) -> float:
    """Return the GB that a recipe's container keeps free unless its owner says otherwise; 0: the machine has memory for the CPU alone."""
    return UNIFIED if recipe.hardware is not None and hardware.load(recipe.hardware.name).unified else 0.0


class MemoryGuard:
    """Watches a machine's memory while a server runs. `reason`: why it ended the server; None as long as it has not."""

    def __init__(self, keep: int, look: Callable[[], Sample] = available_memory.sample, pause: float = PAUSE) -> None:
        """Keep `keep` bytes free."""
        self._keep, self._look, self._pause = keep, look, pause
        self._over = threading.Event()
        self.reason: str | None = None

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` once as soon as too little is left, for the duration of the block.

        Raises:
            StackError: the kernel does not say how much is left.

        """
        self._look()
        thread = threading.Thread(target=self._watch, args=[end], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self, end: Callable[[], None]) -> None:
        while not self._over.wait(self._pause):
            with contextlib.suppress(StackError):  # the next look may succeed
                self.reason = short(self._look(), self._keep)
            if self.reason is not None:
                end()
                return


def short(sample: Sample, keep: int) -> str | None:
    """Say why a server has to end: less than `keep` bytes of memory and swap are left, or of memory alone and processes wait for it."""
    left = f"{sample.available / 1e9:.1f} GB of memory and {sample.swap_free / 1e9:.1f} GB of swap were left"
    if sample.available + sample.swap_free < keep:
        return f"{left}, less than the {keep / 1e9:g} GB of --keep-free: the server was ended before the machine froze"
    if sample.available < keep and sample.stalled is not None and sample.stalled >= STALLED:
        return (
            f"{left}, and all processes waited for memory {sample.stalled:.0f} % of the time (--keep-free {keep / 1e9:g}): "
            "the server was ended before the machine froze"
        )
    return None
