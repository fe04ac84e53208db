# SPDX-License-Identifier: Apache-2.0
"""Order lines by time and by process: of failures at the same time, the kernel's and the engine's come before the API server's."""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from stack.deploy import vllm_log
from stack.deploy.vllm_log import Line
from stack.doctor.knowledge.match import is_kernel

KERNEL = 10**9
"""Added to the line numbers of a kernel's log that is read beside a server's."""
AT_ONCE = 60.0
"""Seconds within which failures belong together: a process that lost its peer reports that within a minute."""
_CLOCK = re.compile(r"\[(?:\w{3} )?(\w{3}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]|^(\w{3}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) ")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_BEGIN = datetime(2024, 1, 1)
_PROCESSES = (("worker", 1), ("engine", 2), ("ray", 3), ("dpcoordinator", 4), ("apiserver", 5))


def process(line: Line) -> int:
    """Return the place of a line's process in the order of causes: the kernel is first, the API server last."""
    if is_kernel(line):
        return 0
    name = line.process.lower()
    return next((place for start, place in _PROCESSES if name.startswith(start)), 2)


def times(lines: Iterable[Line]) -> Mapping[int, float]:
    """Return the time of each line by its number, in seconds; a line without a time has that of the line before it."""
    found, now = dict[int, float](), 0.0
    for line in lines:
        now = _seconds(line) or now
        found.setdefault(line.number, now)
    return found


def _seconds(line: Line) -> float | None:
    if line.at:
        return _since(line.at)
    front = line.text[:100]
    clock = _CLOCK.search(front) if "[" in front or front[:3] in _MONTHS else None
    if clock is None:
        return None
    month, day, clock_time = (clock[1], clock[2], clock[3]) if clock[1] else (clock[5], clock[6], clock[7])
    if month not in _MONTHS:
        return None
    return _since(f"{_MONTHS.index(month) + 1:02}-{int(day):02} {clock_time}")


def _since(at: str) -> float | None:
    """Return a time as seconds since the year began, which is never 0."""
    found = vllm_log.time(at)
    return (found - _BEGIN).total_seconds() + 1 if found is not None else None
