# SPDX-License-Identifier: Apache-2.0
"""Find requests that get unusually few tokens a second, from the lines that vLLM writes every ten seconds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stack.deploy.vllm_log import Line

# v1/metrics/loggers.py
_RATE = re.compile(
    r"Avg prompt throughput: (\d{1,9}(?:\.\d{1,3})?) tokens/s, Avg generation throughput: (\d{1,9}(?:\.\d{1,3})?) tokens/s, "
    r"Running: (\d{1,6}) reqs"
)
_LEAST = 3
"""Lines in a row that have to be slow: the first and the last interval of a request are only partly of it."""
_SLOW = 5.0
"""Tokens a second and request below which even a dense model of 70 B parameters on a DGX Spark does not fall."""
_PREFILL = 100.0
"""Prompt tokens a second above which an interval was spent on prompts."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Intervals in a row that are slow: tokens a second for each request, how many intervals, and the first line."""

    rate: float
    count: int
    line: int


def slow(lines: Sequence[Line]) -> Slow | None:
    """Return the last slow intervals in a row; None if there are fewer than three."""
    rates, found = list[tuple[float, int]](), None
    for line in lines:
        if "generation throughput" not in line.text or (match := _RATE.search(line.text)) is None:
            continue
        prompt, generated, running = float(match[1]), float(match[2]), int(match[3])
        if running and prompt < _PREFILL and 0 < generated / running < _SLOW:
            rates.append((generated / running, line.number))
        else:
            rates = []
        if len(rates) >= _LEAST:
            found = Slow(rates[-1][0], len(rates), rates[0][1])
    return found
