# SPDX-License-Identifier: Apache-2.0
"""Check the room that a server takes: memory, swap, disk, and its port."""

from collections.abc import Iterator

from stack.deploy import memory_advice
from stack.deploy.available_memory import Holder, HolderKind, Memory
from stack.deploy.memory_advice import gigabytes as _gb
from stack.owner.readiness.facts import MachineFacts
from stack.owner.readiness.need import Need
from stack.owner.readiness.places import DiskFacts
from stack.owner.readiness.remark import Remark, fine, note, unknown, wrong

_CACHE_SOURCES = ("vllm-project/vllm#48140", "NVIDIA/xr-ai#440")
_SWAP = (
    "sudo fallocate -l 16G /swapfile",
    "sudo chmod 600 /swapfile",
    "sudo mkswap /swapfile",
    "sudo swapon /swapfile",
    "echo '/swapfile none swap sw 0 0' | sudo tee -a /etc/fstab",
)
_SWAP_SOURCES = ("vllm-project/vllm#56824", "NVIDIA/dgx-spark-playbooks#97")
_LEAST_SWAP = 8 * 10**9
_DESKTOP = 10**9
"""Bytes from which a desktop session is worth a remark."""
_SPARE = 5 * 10**9
"""Bytes that the file system should keep beside model and image: kernels that are compiled at the first start, and logs."""
_SHOWN = 4


def memory(facts: MachineFacts, need: Need) -> Iterator[Remark]:
    """Compare the available memory with the recipe's share, and name who holds the rest."""
    now = facts.memory
    wanted = need.memory
    if wanted is None or (facts.driver.gpus and not facts.is_unified):
        yield fine("memory", f"{_gb(now.usable)} of {_gb(now.total)} are available")
        return
    shown = f"{_gb(now.usable)} of {_gb(now.total)} are available"
    if facts.own is not None:
        yield fine("memory", f"the server of `spark-stack up` holds its share; {shown}")
    elif wanted > now.usable:
        holders = [*_worth_naming(now)] if wanted <= now.total else []
        yield wrong(
            "memory",
            f"{need.recipe} takes {_gb(wanted)}, and less is available",
            *(_ending(each) for each in holders),
            shown_by=". ".join([shown, *(_held(each) for each in holders)]),
            advice=_how(need, wanted, now, named=bool(holders)),
        )
    elif facts.is_unified and wanted > now.free and now.is_cache_worth_dropping:
        yield note(
            "memory",
            f"{_gb(now.cache)} of it are page cache, which some drivers count as taken",
            memory_advice.DROP_CACHES,
            shown_by=f"{shown}, {_gb(now.free)} are free",
            advice="`spark-stack up` may find too little memory otherwise",
            sources=_CACHE_SOURCES,
        )
    else:
        yield fine("memory", f"{shown}, {need.recipe} takes {_gb(wanted)}")


def left_over(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check for engines whose server is gone: nobody ends them, and they hold their memory."""
    for holder in facts.memory.of_kind(HolderKind.ORPHAN):
        yield wrong(
            "left-over",
            "an engine of an earlier server still runs, and its server is gone",
            f"kill {holder.pid}",
            shown_by=_held(holder),
            advice=f"if it does not end: kill -9 {holder.pid}",
        )


def desktop(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check how much memory a desktop session holds."""
    if facts.memory.desktop >= _DESKTOP:
        yield note(
            "desktop",
            "a desktop session holds memory that the server could use",
            memory_advice.NO_DESKTOP,
            "sudo systemctl set-default multi-user.target",
            shown_by=f"{_gb(facts.memory.desktop)}",
            advice="the first ends the session now, the second leaves it out at the next start",
        )


def swap(facts: MachineFacts, _need: Need) -> Iterator[Remark]:
    """Check that there is swap for the peak while weights are loaded."""
    now = facts.memory
    if not facts.is_unified:
        return
    if now.swap < _LEAST_SWAP:
        has = f"{_gb(now.swap)} of swap" if now.swap else "no swap"
        yield note(
            "swap",
            "without swap the machine can hang while weights are loaded",
            *_SWAP,
            shown_by=has,
            sources=_SWAP_SOURCES,
        )
    elif now.swap_free < now.swap // 2 and facts.own is None:
        yield note(
            "swap",
            "more than half of the swap is in use: something else wants the memory",
            shown_by=f"{_gb(now.swap - now.swap_free)} of {_gb(now.swap)}",
            advice="`ps aux --sort=-rss | head` shows the largest processes",
        )
    else:
        yield fine("swap", f"{_gb(now.swap)} of swap, {_gb(now.swap_free)} free")


def disk(facts: MachineFacts, need: Need) -> Iterator[Remark]:
    """Compare the free disk with what has to be downloaded, added up where both go to one file system."""
    wanted: list[tuple[str, DiskFacts, int]] = []
    if facts.model_disk is not None and need.weights is not None:
        left = max(0, need.weights - facts.model_disk.present)
        wanted.append(("the model", facts.model_disk, left))
    if facts.image_disk is not None and not facts.has_image:
        wanted.append(("the image", facts.image_disk, need.image))
    if facts.model_disk is not None and need.weights is None:
        yield unknown("disk", f"the size of {need.repository} is not known", f"df -h {facts.model_disk.folder}")
    for name, place, _ in wanted:
        if place.free is None:
            yield unknown("disk", f"the disk for {name} cannot be read", f"df -h {place.folder}")
    known = [each for each in wanted if each[1].free is not None]
    for device in dict.fromkeys(each[1].device for each in known):
        yield _on_one(device, [each for each in known if each[1].device == device], facts.engine.name or "docker")


def _on_one(device: int | None, wanted: list[tuple[str, DiskFacts, int]], engine: str) -> Remark:
    assert device is not None
    folder, free = wanted[0][1].folder, wanted[0][1].free or 0
    total = sum(size for _, _, size in wanted)
    names = " and ".join(f"{name} ({_gb(size)})" for name, _, size in wanted if size)
    if not total:
        return fine("disk", "the model is there already")
    if total + _SPARE > free:
        return wrong(
            "disk",
            f"there is too little disk for {names}",
            f"df -h {folder}",
            f"{engine} system df",
            shown_by=f"{_gb(free)} are free for {folder}",
            advice="remove models and images that nobody uses, or name another disk: HF_HOME is where models go",
        )
    return fine("disk", f"{_gb(free)} are free for {names}")


def port(facts: MachineFacts, need: Need) -> Iterator[Remark]:
    """Check that the server's port is free."""
    found = facts.port
    if found.is_free:
        yield fine("port", f"port {found.number} is free")
    elif facts.own == found.number:
        yield fine("port", f"the server of `spark-stack up` listens on port {found.number}")
    elif found.holder is not None:
        name, pid = found.holder
        yield wrong(
            "port",
            f"port {found.number} is taken",
            f"kill {pid}",
            shown_by=f"{name} (process {pid}) listens there",
            advice=f"or serve on another one: spark-stack up {need.recipe} --port {found.number + 1}",
        )
    else:
        yield wrong(
            "port",
            f"port {found.number} is taken",
            f"sudo ss -ltnp 'sport = :{found.number}'",
            f"docker ps --filter publish={found.number}",
            shown_by="a process of another user, or a container, listens there",
            advice=f"end it, or serve on another port: spark-stack up {need.recipe} --port {found.number + 1}",
        )


def _worth_naming(now: Memory) -> Iterator[Holder]:
    """Yield the largest holders of memory that a user can end; left-over engines have a remark of their own."""
    found = now.of_kind(HolderKind.SERVER, HolderKind.OTHER, HolderKind.UNSEEN)
    yield from [each for each in found if (each.memory or 0) >= 10**9][:_SHOWN]


def _held(holder: Holder) -> str:
    size = f"holds {_gb(holder.memory)}" if holder.memory is not None else "holds memory of the GPU"
    return f"{holder.name} (process {holder.pid}) {size}"


def _ending(holder: Holder) -> str:
    return "docker ps" if holder.kind is HolderKind.UNSEEN else f"kill {holder.pid}"


def _how(need: Need, wanted: int, now: Memory, *, named: bool) -> str:
    if wanted > now.total:
        return f"this machine is too small for {need.recipe}: name another recipe with --recipe"
    if now.limit is not None and now.limit < wanted <= now.available:
        return "the control group of this session allows less: raise its limit of memory"
    if left := sum(each.memory or 0 for each in now.of_kind(HolderKind.ORPHAN)):
        return f"an engine that is left over holds {_gb(left)} of it: end that first"
    return "" if named else "end what takes memory: `ps aux --sort=-rss | head` shows the largest processes"
