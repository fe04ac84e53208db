# SPDX-License-Identifier: Apache-2.0
"""How many compilers fit beside each other into the machine's memory."""

import os
from pathlib import Path

EACH = 8 * 10**9
"""Bytes for one: what nvcc takes for a file of FlashInfer's grouped MXFP4 GEMMs, the largest measured (8.1 GB)."""
_CGROUP = Path("/sys/fs/cgroup")


def that_fit() -> int:
    """As many as there are processors, and as fit into the memory that is free; one at least."""
    return max(1, min(len(os.sched_getaffinity(0)), available_memory() // EACH))


def named() -> int | None:
    """What the user's MAX_JOBS says, if it is a number."""
    text = os.environ.get("MAX_JOBS", "")
    return int(text) or None if text.isascii() and text.isdigit() else None


def available_memory() -> int:
    """Bytes that may still be used, by the system's account and the container's."""
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) * 1024
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return free if limit == "max" else min(free, int(limit) - int(used))
    except OSError:
        return free
