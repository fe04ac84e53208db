# SPDX-License-Identifier: Apache-2.0
"""Measure the GPU's work for one token: profile two answers of different lengths with torch, and subtract.

Both answers begin with the same prompt. So everything but decoding cancels, and the trace needs no marks where a token begins.
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
    # Compiled by torch for the work between the others. Their names list operators, also those of experts: match them first.
    ("small", re.compile(r"^triton_(per|poi|red|tem)_")),
    # Not "flash" alone: FlashInfer's kernels of every part have it in their namespace.
    ("attention", re.compile(r"attention|fmha|flash_?attn|flash_fwd|xqa|reshape_and_cache|reduce_segments", re.IGNORECASE)),
    ("experts", re.compile(r"moe|expert|swiglu|topk|matmul_ogs|_matmul|routing|bitmatrix", re.IGNORECASE)),
    (DENSE, re.compile(r"marlin|gemm|gemv|nvjet|cublas|splitk|cutlass", re.IGNORECASE)),
)
_REST = "small"
_NAMED = 12
"""Number of kernels that are named, longest first."""
_LONGEST = 60

Kernel = tuple[str, tuple[int, ...]]
"""A kernel's name and grid. The grid is needed because lm_head's kernel has the name of other layers' kernels."""
Runs = Mapping[Kernel, Sequence[tuple[float, float]]]
"""Begin and end of each run of each kernel, in microseconds."""


@dataclass(frozen=True, slots=True)
class Token:
    """The kernels of one token: number and microseconds of each, and microseconds in which at least one runs.

    If kernels overlap, their times add up to more than the busy time. With programmatic dependent launch a kernel begins, and waits,
    while its predecessor runs.
    """

    counts: Mapping[Kernel, float]
    times: Mapping[Kernel, float]
    busy: float

    @property
    def kernels(self) -> float:
        """Number of kernel runs."""
        return sum(self.counts.values())

    def parts(self) -> Mapping[str, float]:
        """Sum up the microseconds of each part of the model."""
        times: Counter[str] = Counter()
        for kernel, time in self.times.items():
            times[self._part(kernel)] += time  # type: ignore[assignment]
        return times

    def longest(self) -> str:
        """Describe the kernels that take longest."""
        ranked = sorted(self.times, key=lambda kernel: -self.times[kernel])[:_NAMED]
        return "; ".join(f"{self.times[each]:.1f} us in {self.counts[each]:.3g} of {each[0][:_LONGEST]}" for each in ranked)

    def measured(self) -> dict[str, float | str]:
        """Return all of it in the form that a verdict has."""
        by_part = {f"us of {part}": time for part, time in sorted(self.parts().items())}
        return {"kernels a token": self.kernels, "us busy a token": self.busy, **by_part, "longest": self.longest()}

    def _part(self, kernel: Kernel) -> str:
        part = next((part for part, pattern in _PARTS if pattern.search(kernel[0])), _REST)
        # lm_head runs once per token, every other dense layer many times.
        return LM_HEAD if part == DENSE and self.counts[kernel] < 1.5 else part


def token(short: bytes, long: bytes, more: int) -> Token:
    """Compute the work for one token from the traces of two answers; the second has `more` more tokens.

    Raises:
        StackError: a trace is invalid, or the longer answer did not run more kernels.

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
    """Read the trace that was written since; only one process uses the GPU, so there is one.

    Raises:
        StackError: there is none, or there are several.

    """
    new = sorted(set(traces(folder)) - set(before))
    if len(new) != 1:
        raise StackError(f"the profiler wrote {len(new)} traces, not one", "see the server's log")
    return new[0].read_bytes()


def traces(folder: Path) -> list[Path]:
    """List the traces in a folder."""
    return list(folder.rglob("*.pt.trace.json"))


def _kernels(trace: bytes) -> Runs:
    try:
        events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    except (ValueError, KeyError, TypeError) as bad:
        raise StackError("the profiler's output is not a trace", "see the server's log") from bad
    runs: dict[Kernel, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("cat") == "kernel":
            kernel = str(event["name"]), tuple(event.get("args", {}).get("grid", ()))
            begun = float(event["ts"])
            runs.setdefault(kernel, []).append((begun, begun + float(event["dur"])))
    return runs


def _sum(runs: Sequence[tuple[float, float]]) -> float:
    return sum(ended - begun for begun, ended in runs)


def _covered(kernels: Runs) -> float:
    """Sum up the microseconds in which at least one kernel runs."""
    total, until = 0.0, float("-inf")
    for begun, ended in sorted(run for runs in kernels.values() for run in runs):
        total += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total
