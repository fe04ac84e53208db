# SPDX-License-Identifier: Apache-2.0
"""Find the processes that hold a GPU's memory, servers of vLLM that are left over, and the desktop session."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_QUERY = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
_WAIT = 30.0
"""Seconds that nvidia-smi may take."""
_APPLICATION = re.compile(r"([0-9]{1,10}), ?(.{0,4000}), ?([0-9]{1,9}|\[[^\]]{1,40}\])")
_STAT = re.compile(r"[0-9]+ \((.*)\) (\w) ([0-9]+) ", re.DOTALL)
_OWN = re.compile(r"^Rss(?:Anon|Shmem):\s+([0-9]{1,15}) kB$", re.MULTILINE)
_ENGINE = "VLLM::"
"""How the titles of vLLM's engine and worker processes begin (vllm/utils/system_utils.py, 0.32)."""
_DESKTOP = frozenset(
    {
        "Xorg",
        "Xwayland",
        "gnome-shell",
        "gnome-software",
        "gsd-xsettings",
        "mutter-x11-fram",
        "kwin_wayland",
        "kwin_x11",
        "plasmashell",
    }
)
"""Names of a desktop's processes, as the kernel cuts them."""
_LONGEST = 60


class HolderKind(StrEnum):
    """The kind of a process: a running server of vLLM, an engine whose server is gone, the desktop, a process that cannot be seen, or another."""

    SERVER = "server"
    ORPHAN = "orphan"
    DESKTOP = "desktop"
    UNSEEN = "unseen"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory; `memory` in bytes, None if the driver does not say.

    Of a process on the GPU it is the driver's number, of any other the memory that is its own.
    """

    pid: int
    name: str
    kind: HolderKind
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    name: str
    title: str
    own: int

    @property
    def is_engine(self) -> bool:
        return self.title.startswith(_ENGINE) or self.name.startswith(_ENGINE)

    @property
    def is_vllm(self) -> bool:
        words = self.title.split()[:3]
        return self.is_engine or any(word.rpartition("/")[2] == "vllm" for word in words) or "vllm.entrypoints" in self.title


def find(proc: Path, nvidia_smi: str | None) -> tuple[Holder, ...]:
    """Find the processes that hold memory, by their ids.

    Args:
        proc: the mounted /proc.
        nvidia_smi: the program that lists processes on GPUs; None asks no driver.

    """
    processes = {process.pid: process for process in _processes(proc)}
    found = {pid: Holder(pid, name, HolderKind.UNSEEN, memory) for pid, name, memory in _on_gpus(nvidia_smi)}
    for process in processes.values():
        kind = _kind(process, processes)
        if process.pid in found:
            found[process.pid] = Holder(process.pid, _shown(process), kind, found[process.pid].memory)
        elif kind is HolderKind.ORPHAN or kind is HolderKind.DESKTOP or kind is HolderKind.SERVER:
            found[process.pid] = Holder(process.pid, _shown(process), kind, process.own)
    return tuple(found[pid] for pid in sorted(found))


def running(proc: Path, names: frozenset[str]) -> tuple[str, ...]:
    """Return those of the names that a running process has."""
    return tuple(sorted(names & {process.name for process in _processes(proc)}))


def _kind(process: _Process, processes: Mapping[int, _Process]) -> HolderKind:
    if process.name in _DESKTOP:
        return HolderKind.DESKTOP
    if not process.is_vllm:
        return HolderKind.OTHER
    # An engine lives below the front end that started it. Without one, nobody ends it.
    first, seen = process, {process.pid}
    while (above := processes.get(first.parent)) is not None and above.is_vllm and above.pid not in seen:
        first = above
        seen.add(above.pid)
    return HolderKind.ORPHAN if first.is_engine else HolderKind.SERVER


def _shown(process: _Process) -> str:
    return _printable((process.title or process.name)[:_LONGEST])


def _printable(name: str) -> str:
    """Replace control characters: any user may give a process any name."""
    return "".join(each if each.isprintable() else "?" for each in name)


def _processes(proc: Path) -> Iterator[_Process]:
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat, status, title = (
                (folder / name).read_bytes().decode("utf-8", "replace") for name in ("stat", "status", "cmdline")
            )
        except OSError:  # it has ended
            continue
        if (found := _STAT.match(stat)) is None or found[2] == "Z":  # a zombie holds no memory
            continue
        own = sum(map(int, _OWN.findall(status))) * 1024
        yield _Process(int(folder.name), int(found[3]), found[1], " ".join(title.replace("\0", " ").split()), own)


def _on_gpus(nvidia_smi: str | None) -> Iterator[tuple[int, str, int | None]]:
    """Yield id, name and bytes of each process that the driver lists; nothing without a driver."""
    if nvidia_smi is None:
        return
    try:
        done = subprocess.run(
            [nvidia_smi, *_QUERY], capture_output=True, text=True, errors="replace", check=False, timeout=_WAIT
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        if found := _APPLICATION.fullmatch(line.strip()):
            yield int(found[1]), _printable(found[2][-_LONGEST:]), int(found[3]) * 2**20 if found[3].isdigit() else None
