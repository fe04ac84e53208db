# SPDX-License-Identifier: Apache-2.0
"""Measure a server's speed within a few minutes: as many sizes as fit, the short ones first."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.progress import Progress
from stack.model.verdict import Case, Outcome
from stack.validation.bench import benchy
from stack.validation.bench.benchy import Measured, Size, Target, TooShortError, UnmeasuredError
from stack.validation.bench.suite import case_name, measured, numbers

RUNS = 3
"""Measurements of each size: the least with which a spread says something."""
SIZES = tuple(Size(prompt, answer, RUNS) for answer in (32, 128) for prompt in (512, 2048, 8192))
"""The sizes with which speeds are published."""
_LEAST = 30.0
"""Seconds that a request may take even if the time is nearly over: the first one may compile kernels."""
_SURE = 1.2
"""How much longer than computed a size may take."""


@dataclass(frozen=True, slots=True)
class ShortBench:
    """The input of a short bench: the interpreter of llama-benchy, the server, the most tokens of a request (None if unknown), and `needs`.

    `seconds`: the time for all sizes.
    """

    python: Path
    target: Target
    length: int | None
    needs: tuple[str, ...]
    seconds: float
    sizes: Sequence[Size] = SIZES


def run(bench: ShortBench, tell: Progress) -> Iterator[Case]:
    """Yield a case for each size; those for which no time is left are not run."""
    until, known = time.monotonic() + bench.seconds, list[tuple[Measured, float]]()
    for place, size in enumerate(bench.sizes):
        tell(f"measuring {size.name}", place, len(bench.sizes))
        left = until - time.monotonic()
        if why := _left_out(bench, size, known, left):
            yield Case(case_name(size), Outcome.NOT_RUN, why, bench.needs)
            continue
        case = _case(bench, size, max(left, _LEAST), until)
        yield case
        if (result := measured(case)) is not None:
            known.append((result, case.seconds))


def _left_out(bench: ShortBench, size: Size, known: Sequence[tuple[Measured, float]], left: float) -> str:
    """Say why a size is not measured; empty if it is."""
    room = size.prompt + size.answer + benchy.ROOM
    if bench.length is not None and room > bench.length:
        return f"the server takes {bench.length} tokens in a request, this size needs {room}"
    if left <= 0 or (known and _expected(size, known) > left):
        return f"no time is left of {bench.seconds / 60:g} minutes: give it more with --minutes"
    return ""


def _expected(size: Size, known: Sequence[tuple[Measured, float]]) -> float:
    """Compute how long a size takes by the speeds and the overhead of the last one."""
    last, seconds = known[-1]
    prefill, decode = (min(runs) for runs in (last.prefill, last.decode))

    def work(of: Size) -> float:
        return of.runs * (of.prompt / prefill + of.answer / decode)

    return (max(0.0, seconds - work(last.size)) + work(size)) * _SURE


def _case(bench: ShortBench, size: Size, patience: float, until: float) -> Case:
    began = time.monotonic()

    def ended(outcome: Outcome, why: str) -> Case:
        return Case(case_name(size), outcome, why, bench.needs, seconds=time.monotonic() - began)

    silent: Callable[[int], None] = lambda _: None  # noqa: E731
    try:
        result = benchy.measure(bench.python, bench.target, size, silent, patience)
    except TooShortError as short:
        return ended(Outcome.NOT_RUN, str(short))
    except UnmeasuredError as refused:
        late = time.monotonic() >= until
        return ended(Outcome.NOT_RUN if late else Outcome.FAILED, f"not in time: {refused}" if late else str(refused))
    seconds = time.monotonic() - began
    return Case(case_name(size), Outcome.PASSED, "", bench.needs, numbers(result), seconds=seconds)
