# SPDX-License-Identifier: Apache-2.0
"""What the GPU does for one token: the kernels of two answers of different lengths, by torch's profiler, and their difference.

Both answers begin with the same prompt, so all that is not decoding cancels, and no mark in the trace has to say where a token begins.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError

DENSE = "dense"
LM_HEAD = "lm_head"
_PARTS = (
    # Compiled by torch for what lies between the others; their names list operators, those of experts among them.
    ("small", re.compile(r"^triton_(per|poi|red|tem)_")),
    # Never by "flash" alone: FlashInfer's kernels of every part have it in their namespace.
    ("attention", re.compile(r"attention|fmha|flash_?attn|flash_fwd|xqa|reshape_and_cache|reduce_segments", re.IGNORECASE)),
    ("experts", re.compile(r"moe|expert|swiglu|topk|matmul_ogs|_matmul|routing|bitmatrix", re.IGNORECASE)),
    (DENSE, re.compile(r"marlin|gemm|gemv|nvjet|cublas|splitk|cutlass", re.IGNORECASE)),
)
_REST = "small"
_NAMED = 12
"""Kernels that are named, by the time they take."""
_LONGEST = 60

Kernel = tuple[str, tuple[int, ...]]
"""A kernel's name and grid: lm_head's has the name of other layers' kernels."""
Runs = Mapping[Kernel, Sequence[tuple[float, float]]]
"""When each run of each kernel began and ended, in microseconds."""


@dataclass(frozen=True, slots=True)
class Token:
    """The kernels of one token: how many there are of each, microseconds of each, and microseconds in which one at least runs.

    The first sum to more than the second where kernels run at once: with programmatic dependent launch one begins, and waits, beneath
    the one before.
    """

    counts: Mapping[Kernel, float]
    times: Mapping[Kernel, float]
    busy: float

    @property
    def kernels(self) -> float:
        """How many run."""
        return sum(self.counts.values())

    def parts(self) -> Mapping[str, float]:
        """Microseconds of each part of the model."""
        found: Counter[str] = Counter()
        for kernel, time in self.times.items():
            found[self._part(kernel)] += time  # type: ignore[assignment]
        return found

    def longest(self) -> str:
        """The kernels that take most."""
        ranked = sorted(self.times, key=lambda kernel: -self.times[kernel])[:_NAMED]
        return "; ".join(f"{self.times[one]:.1f} us in {self.counts[one]:.3g} of {one[0][:_LONGEST]}" for one in ranked)

    def measured(self) -> dict[str, float | str]:
        """All of it as a verdict has it."""
        by_part = {f"us of {part}": time for part, time in sorted(self.parts().items())}
        return {"kernels a token": self.kernels, "us busy a token": self.busy, **by_part, "longest": self.longest()}

    def _part(self, kernel: Kernel) -> str:
        part = next((part for part, pattern in _PARTS if pattern.search(kernel[0])), _REST)
        # There is one lm_head and there are many layers.
        return LM_HEAD if part == DENSE and self.counts[kernel] < 1.5 else part


def token(short: bytes, long: bytes, more: int) -> Token:
    """What one token takes, out of the traces of two answers of which the second has so many tokens more.

    Raises:
        StackError: a trace is none, or the longer answer did not take more kernels.

    """
    before, after = _kernels(short), _kernels(long)
    counts = {kernel: (len(runs) - len(before.get(kernel, ()))) / more for kernel, runs in after.items()}
    times = {kernel: (_sum(runs) - _sum(before.get(kernel, ()))) / more for kernel, runs in after.items()}
    kept = [kernel for kernel, count in counts.items() if count > 0]
    if not kept:
        raise StackError("the longer answer has no more kernels than the shorter one", "the profiler saw no GPU: see the log")
    busy = (_covered(after) - _covered(before)) / more
    return Token({kernel: counts[kernel] for kernel in kept}, {kernel: times[kernel] for kernel in kept}, busy)


def written(folder: Path, before: Sequence[Path]) -> bytes:
    """The trace that was written since: one process has the GPU.

    Raises:
        StackError: there is none, or there are several.

    """
    new = sorted(set(traces(folder)) - set(before))
    if len(new) != 1:
        raise StackError(f"the profiler wrote {len(new)} traces, not one", "see the server's log")
    return new[0].read_bytes()


def traces(folder: Path) -> list[Path]:
    """The traces in a folder."""
    return list(folder.rglob("*.pt.trace.json"))


def _kernels(trace: bytes) -> Runs:
    try:
        events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    except (ValueError, KeyError, TypeError) as bad:
        raise StackError("what the profiler wrote is no trace", "see the server's log") from bad
    found: dict[Kernel, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("cat") == "kernel":
            kernel = str(event["name"]), tuple(event.get("args", {}).get("grid", ()))
            begun = float(event["ts"])
            found.setdefault(kernel, []).append((begun, begun + float(event["dur"])))
    return found


def _sum(runs: Sequence[tuple[float, float]]) -> float:
    return sum(ended - begun for begun, ended in runs)


def _covered(found: Runs) -> float:
    """Microseconds in which one runs, however many there are at once."""
    total, until = 0.0, float("-inf")
    for begun, ended in sorted(run for runs in found.values() for run in runs):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total
