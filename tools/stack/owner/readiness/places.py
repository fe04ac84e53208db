# SPDX-License-Identifier: Apache-2.0
"""Read where a server needs room: the disk of the model and of the image, and the port."""

import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_LISTENING = "0A"
_SOCKET = re.compile(r"socket:\[(\d{1,20})\]")


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """A folder that something will be written to. `free`: bytes that this user may write; `present`: bytes that are there already.

    `device` tells file systems apart. All are None if the folder's file system cannot be asked.
    """

    folder: Path
    free: int | None
    device: int | None
    present: int = 0


@dataclass(frozen=True, slots=True)
class PortFacts:
    """A port of the loopback interface. `holder`: name and id of the process that listens, if this user may see it."""

    number: int
    is_free: bool
    holder: tuple[str, int] | None = None


def model_cache() -> Path:
    """Return the folder in which Hugging Face's libraries keep models."""
    if named := os.environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    home = os.environ.get("HF_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".cache/huggingface") / "hub"


def of_model(cache: Path, repository: str) -> DiskFacts:
    """Read the disk of the model cache, and how much of a repository is there."""
    blobs = cache / f"models--{repository.replace('/', '--')}" / "blobs"
    return disk(cache, sum(_sizes(blobs)))


def disk(folder: Path, present: int = 0) -> DiskFacts:
    """Read the file system of a folder, which need not exist yet."""
    for place in (folder, *folder.parents):
        try:
            room, device = os.statvfs(place), place.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            break
        return DiskFacts(folder, room.f_frsize * room.f_bavail, device, present)
    return DiskFacts(folder, None, None, present)


def port(number: int, proc: Path = Path("/proc")) -> PortFacts:
    """Tell whether a port of the loopback interface is free, and who listens there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections that ended lately do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return PortFacts(number, False, _holder(number, proc))
    return PortFacts(number, True)


def _sizes(folder: Path) -> Iterator[int]:
    try:
        files = [*folder.iterdir()]
    except OSError:
        return
    for file in files:
        try:
            yield file.stat().st_size
        except OSError:
            continue


def _holder(number: int, proc: Path) -> tuple[str, int] | None:
    inodes = {*_listening(number, proc)}
    for process in sorted(proc.glob("[0-9]*"), key=lambda folder: int(folder.name)) if inodes else ():
        if inodes.isdisjoint(_sockets(process)):
            continue
        try:
            return (process / "comm").read_text(errors="replace").strip()[:60], int(process.name)
        except OSError:  # it has ended
            continue
    return None


def _sockets(process: Path) -> Iterator[str]:
    """Yield the inodes of a process's sockets; nothing for one of another user."""
    try:
        descriptors = [*(process / "fd").iterdir()]
    except OSError:
        return
    for each in descriptors:
        try:
            link = os.readlink(each)  # noqa: PTH115 - a socket is no path
        except OSError:  # closed meanwhile
            continue
        if found := _SOCKET.fullmatch(link):
            yield found[1]


def _listening(number: int, proc: Path) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (proc / table).read_text(encoding="ascii", errors="replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if len(words) > 9 and words[3] == _LISTENING and words[1].endswith(f":{number:04X}"):
                yield words[9]
