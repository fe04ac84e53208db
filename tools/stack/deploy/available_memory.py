# SPDX-License-Identifier: Apache-2.0
"""Read how much memory a machine has left, where CPU and GPU share it: free, page cache, swap, limits, and who holds the rest.

All sizes are in bytes. On a machine with unified memory the driver reports the kernel's MemFree as the GPU's free memory: the page cache
counts as taken there (measured on a GB10, unslothai/unsloth pull request 10704). vLLM asks for MemAvailable instead (vllm-project/vllm
issue 48140), which counts the page cache that the kernel can drop.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.deploy import memory_holders
from stack.deploy.memory_holders import Holder, HolderKind

__all__ = ["Holder", "HolderKind", "Memory", "Sample", "Sources", "read", "sample"]

_LINE = re.compile(r"^(\w+(?:\(\w+\))?):\s+([0-9]{1,15}) kB$", re.MULTILINE)
_NEEDED = ("MemTotal", "MemFree", "MemAvailable")
_STALLED = re.compile(r"^full avg10=([0-9]{1,3}\.[0-9]{1,4}) ", re.MULTILINE)
_SHOWN_FROM = 10**9
"""Bytes from which the page cache is worth dropping."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the memory is read; another machine's files in tests. `nvidia_smi`: None asks no driver."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    nvidia_smi: str | None = "nvidia-smi"


HERE = Sources()


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a machine.

    `free`: memory without any use; with unified memory all that the driver reports as free. `available`: also counts the page cache that
    the kernel can drop. `cache`: page cache of files. `shared`: /dev/shm and other tmpfs, which no cache drop frees. `limit`: what the
    control group of this process may still take; None without a limit. `holders`: processes that hold GPU memory, servers of vLLM and
    the desktop session. `stalled`: percent of the last ten seconds in which every process waited for memory; None if the kernel does
    not say.
    """

    total: int
    free: int
    available: int
    cache: int
    shared: int
    swap: int
    swap_free: int
    limit: int | None = None
    holders: tuple[Holder, ...] = ()
    stalled: float | None = None

    @property
    def usable(self) -> int:
        """Bytes that a new server may take: what is available, up to the limit of the control group."""
        return self.available if self.limit is None else min(self.available, self.limit)

    @property
    def hidden(self) -> int:
        """Bytes that are available and that a driver with unified memory reports as taken: the page cache."""
        return max(0, self.available - self.free)

    @property
    def desktop(self) -> int:
        """Bytes that the desktop session holds."""
        return sum(holder.memory or 0 for holder in self.holders if holder.kind is HolderKind.DESKTOP)

    def of_kind(self, *kinds: HolderKind) -> tuple[Holder, ...]:
        """Return the holders of some kinds, the largest first."""
        found = [holder for holder in self.holders if holder.kind in kinds]
        return tuple(sorted(found, key=lambda holder: (-(holder.memory or 0), holder.pid)))

    @property
    def is_cache_worth_dropping(self) -> bool:
        """Whether the page cache holds so much that dropping it changes what the driver reports."""
        return self.cache >= _SHOWN_FROM


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory that is left at one moment; cheap enough to be read each second. `stalled`: see `Memory`."""

    available: int
    swap_free: int
    stalled: float | None = None


def read(sources: Sources = HERE) -> Memory:
    """Read the memory of this machine.

    Raises:
        StackError: the kernel does not say how much there is.

    """
    sizes = _meminfo(sources)
    return Memory(
        total=sizes["MemTotal"],
        free=sizes["MemFree"],
        available=sizes["MemAvailable"],
        # tmpfs is counted in Cached, but only swapping frees it.
        cache=max(0, sizes.get("Cached", 0) + sizes.get("Buffers", 0) - sizes.get("Shmem", 0)),
        shared=sizes.get("Shmem", 0),
        swap=sizes.get("SwapTotal", 0),
        swap_free=sizes.get("SwapFree", 0),
        limit=_limit(sources),
        holders=memory_holders.find(sources.proc, sources.nvidia_smi),
        stalled=_stalled(sources),
    )


def sample(sources: Sources = HERE) -> Sample:
    """Read only what is left: no process is looked at, and no program is started.

    Raises:
        StackError: the kernel does not say how much there is.

    """
    sizes = _meminfo(sources)
    return Sample(sizes["MemAvailable"], sizes.get("SwapFree", 0), _stalled(sources))


def _meminfo(sources: Sources) -> Mapping[str, int]:
    file = sources.proc / "meminfo"
    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "run this on Linux, with /proc mounted") from failed
    sizes = {name: int(size) * 1024 for name, size in _LINE.findall(text)}
    if missing := [name for name in _NEEDED if name not in sizes]:
        raise StackError(f"{file} has no {missing[0]}", "run this on Linux 3.14 or newer")
    return sizes


def _stalled(sources: Sources) -> float | None:
    """Read the kernel's pressure stall information; it is missing where the kernel was built or started without it."""
    try:
        text = (sources.proc / "pressure/memory").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = _STALLED.search(text)
    return float(found[1]) if found else None


def _limit(sources: Sources) -> int | None:
    """Return what the control group of this process, or one above it, may still take; None without a limit (control groups v2)."""
    try:
        text = (sources.proc / "self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    named = next((line[3:] for line in text.splitlines() if line.startswith("0::/")), None)
    if named is None or ".." in Path(named).parts:
        return None
    group = sources.cgroup / named.lstrip("/")
    # In a container the path may be the host's: then only the root of what is mounted is there.
    folders = [group, *group.parents]
    folders = folders[: folders.index(sources.cgroup) + 1]
    rooms = [room for folder in folders if (room := _room(folder)) is not None]
    return min(rooms) if rooms else None


def _room(group: Path) -> int | None:
    """Return what a control group may still take. Its page cache does not count: the kernel drops it before it refuses memory."""
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
        statistics = (group / "memory.stat").read_text()
    except OSError:
        return None
    if not limit.isdigit() or not used.isdigit():  # "max": unlimited
        return None
    files = sum(map(int, re.findall(r"^(?:in)?active_file ([0-9]{1,18})$", statistics, re.MULTILINE)))
    return max(0, int(limit) - max(0, int(used) - files))
