# SPDX-License-Identifier: Apache-2.0
"""Say in words what takes a machine's memory, and how to free some, where CPU and GPU share it."""

from collections.abc import Iterator

from stack.deploy.available_memory import Holder, HolderKind, Memory

DROP_CACHES = "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"
"""Empty the page cache. Files are read from disk again."""
NO_DESKTOP = "sudo systemctl isolate multi-user.target"
"""End the desktop session until the next `systemctl isolate graphical.target` or restart."""
_MOST = 3
"""Processes that are named; a line must be readable."""


def gigabytes(size: float) -> str:
    """Write a number of bytes in GB (10^9 bytes)."""
    return f"{size / 1e9:.0f} GB"


def numbers(memory: Memory) -> str:
    """Write what is left of a machine's memory in one line."""
    swap = f"{gigabytes(memory.swap_free)} of {gigabytes(memory.swap)} swap are free" if memory.swap else "there is no swap"
    limit = f", the control group allows {gigabytes(memory.limit)} more" if memory.limit is not None else ""
    return (
        f"{gigabytes(memory.available)} of {gigabytes(memory.total)} are available{limit} "
        f"({gigabytes(memory.free)} unused, {gigabytes(memory.cache)} page cache); {swap}"
    )


def steps(memory: Memory) -> tuple[str, ...]:
    """List what frees memory on this machine, what frees most certainly first; empty if nothing is known that does."""
    return tuple(_steps(memory))


def hidden(memory: Memory, needed: float) -> str | None:
    """Warn of a page cache that the driver counts as taken; None if a server of `needed` bytes fits without dropping it.

    The driver refuses to say how much is free in such a state (NVIDIA/xr-ai pull request 440), and a start is then a matter of luck.
    """
    if memory.free >= needed or memory.usable < needed or not memory.is_cache_worth_dropping:
        return None
    return (
        f"the page cache holds {gigabytes(memory.cache)}, which the driver of a GPU with shared memory counts as taken: "
        f"{gigabytes(memory.free)} are unused, {gigabytes(needed)} are wanted. If the start fails: {DROP_CACHES}"
    )


def _steps(memory: Memory) -> Iterator[str]:
    if left := memory.of_kind(HolderKind.ORPHAN):
        ids = " ".join(str(holder.pid) for holder in left[:_MOST])
        yield f"end what an earlier server left over ({_named(left)}): kill {ids}"
    if servers := memory.of_kind(HolderKind.SERVER):
        yield f"end the server that runs ({_named(servers)})"
    if unseen := memory.of_kind(HolderKind.UNSEEN):
        yield f"end what another container runs on the GPU ({_named(unseen)}; docker ps)"
    if others := tuple(holder for holder in memory.of_kind(HolderKind.OTHER) if holder.memory is None or holder.memory > 0):
        yield f"end what else holds the GPU's memory ({_named(others)})"
    if memory.desktop:
        yield f"end the desktop session, which holds at least {memory.desktop / 1e9:.1f} GB: {NO_DESKTOP}"
    if memory.is_cache_worth_dropping:
        yield f"drop the page cache of {gigabytes(memory.cache)}: {DROP_CACHES}"


def _named(holders: tuple[Holder, ...]) -> str:
    shown = [
        f"{holder.pid} {holder.name}" + (f", {gigabytes(holder.memory)}" if holder.memory else "") for holder in holders[:_MOST]
    ]
    more = [f"{len(holders) - _MOST} more"] if len(holders) > _MOST else []
    return "; ".join([*shown, *more])
