# SPDX-License-Identifier: Apache-2.0
"""Compute how many compilers fit into the machine's memory at once."""

import os
from pathlib import Path

EACH = 8 * 10**9
"""Bytes per compiler: nvcc's peak for FlashInfer's grouped MXFP4 GEMMs, the largest measured (8.1 GB)."""
_CGROUP = Path("/sys/fs/cgroup")


def that_fit() -> int:
    """Return the number of compilers that processors and free memory allow; at least one."""
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // EACH))


def named() -> int | None:
    """Return the user's MAX_JOBS, if it is a positive number."""
    text = os.environ.get("MAX_JOBS", "")
    return int(text) or None if text.isascii() and text.isdigit() else None


def available_memory() -> int:
    """Return the bytes of memory still available to the system and the container."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return free if limit == "max" else min(free, int(limit) - int(used))
    except OSError:
        return free
