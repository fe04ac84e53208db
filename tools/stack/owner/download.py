# SPDX-License-Identifier: Apache-2.0
"""Download a model's revision into Hugging Face's cache: what is there is kept, and each file is compared with the hub's hash.

A file that is not whole yet lies beside the blobs, and the next call goes on where it ends. huggingface_hub 2.4 begins such a file
again, and leaves what was there.
"""

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.owner import hub
from stack.owner.hub import Part
from stack.owner.hub_client import Hub, PassingError

_T = TypeVar("_T")
_ATTEMPTS = 5
"""Attempts in a row without a new byte before a download gives up."""
_FIRST_PAUSE = 1.0
_AGAIN = "run the command again: it goes on where it was"
_SPARE = 2**30
"""Bytes that stay free beside a model."""
_THREADS = 4
_TOLD = 0.2
"""Seconds between two reports of progress."""
_AT_ONCE = 2**20
_PART = ".stack-part"


def cached(where: Hub, repository: str, revision: str | None) -> Path | None:
    """Return the folder of a revision in the cache, whole or not; None if there is nothing of it."""
    folder = _folder(where, repository)
    if revision is None:
        with contextlib.suppress(OSError, ValueError):
            revision = (folder / "refs/main").read_text(encoding="ascii").strip()
    snapshot = folder / "snapshots" / revision if revision else None
    return snapshot.resolve() if snapshot is not None and snapshot.is_dir() else None


def place(where: Hub, repository: str, revision: str) -> Path:
    """Return the folder of a revision in the cache, whether it is there or not."""
    return _folder(where, repository) / "snapshots" / revision


def download(where: Hub, repository: str, revision: str | None, tell: Progress) -> Path:
    """Download what a revision lacks in the cache, and return its folder. Files that are there already must have been compared with their hashes.

    Raises:
        StackError: The hub does not answer or refuses, the disk is full, or the files that arrive are not those that it names.

    """
    step = f"downloading {repository}"
    tell(step)
    commit, files = _tried(repository, lambda: where.listed(repository, revision), lambda: 0)
    folder = _folder(where, repository)
    blobs, snapshot = folder / "blobs", folder / "snapshots" / commit
    with _explained():
        for each in (blobs, snapshot):
            each.mkdir(parents=True, exist_ok=True)
        _demand_room(blobs, files)
        # Files with the same bytes are one blob, which two threads must not write at once.
        unique = tuple({part.hash: part for part in files}.values())
        linked = frozenset(part.hash for part in files if _is_linked(snapshot / part.name, part))
        _Transfer(where, repository, commit, blobs, sum(part.size for part in unique), linked).fetch(unique, step, tell)
        for part in files:
            _link(snapshot / part.name, part)
        if revision is None:
            (folder / "refs").mkdir(exist_ok=True)
            (folder / "refs/main").write_text(commit, encoding="ascii")
    return snapshot.resolve()


def drop(snapshot: Path, names: tuple[str, ...]) -> None:
    """Remove damaged files of a snapshot, and their blobs: they are downloaded again."""
    for name in names:
        link = snapshot / name
        blob = link.resolve()
        if link.is_symlink() and blob.is_relative_to(snapshot.resolve().parents[1]):
            blob.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _folder(where: Hub, repository: str) -> Path:
    return where.cache / f"models--{repository.replace('/', '--')}"


def _link(link: Path, part: Part) -> None:
    """Put a link to a blob into a snapshot; one that is there already stays."""
    if _is_linked(link, part):
        return
    target = _target(part)
    made = link.with_name(f".{link.name}{_PART}")
    made.unlink(missing_ok=True)
    made.symlink_to(target)
    made.replace(link)


def _is_linked(link: Path, part: Part) -> bool:
    return link.is_symlink() and os.readlink(link) == _target(part)  # noqa: PTH115 - as it is written


def _target(part: Part) -> str:
    return f"../../blobs/{part.hash}"


@dataclass(slots=True)
class _Transfer:
    """The transfer of a revision's files: how much has arrived, and whether it is given up.

    `linked`: hashes of blobs that the snapshot had before; their bytes were compared already.
    """

    where: Hub
    repository: str
    commit: str
    blobs: Path
    total: int
    linked: frozenset[str] = frozenset()
    arrived: int = 0
    given_up: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, files: tuple[Part, ...], step: str, tell: Progress) -> None:
        """Fetch files, several at once."""
        with ThreadPoolExecutor(_THREADS) as threads:
            fetched = [threads.submit(self._file, part) for part in files]
            try:
                while not all(each.done() for each in fetched):
                    tell(step, self.arrived, self.total)
                    if any(each.done() and each.exception() for each in fetched):
                        break
                    time.sleep(_TOLD if self.total > _AT_ONCE else 0.01)
                self.given_up.set()
                for each in fetched:
                    each.cancel()
                for each in fetched:
                    if (
                        not each.cancelled()
                        and (failed := each.exception()) is not None
                        and not isinstance(failed, _GivenUpError)
                    ):
                        raise failed
            finally:
                self.given_up.set()

    def _file(self, part: Part) -> None:
        """Fetch a file: twice, if its bytes are not those that the hub names."""
        blob = self.blobs / part.hash
        is_there = blob.exists() and blob.stat().st_size == part.size
        # A blob of another revision, or of a program that compares no hashes, may be damaged.
        if is_there and (part.hash in self.linked or hub.is_good(blob, part, lambda _: None)):
            self._count(part.size)
            return
        file = self.blobs / f"{part.hash}{_PART}"
        for _ in range(2):
            size = lambda: file.stat().st_size if file.exists() else 0  # noqa: E731
            _tried(self.repository, lambda: self._rest(part, file), size)
            if hub.is_good(file, part, lambda _: None):
                file.replace(blob)
                return
            file.unlink()
            self._count(-part.size)
        raise StackError(
            f"{part.name} of {self.repository} arrives with other bytes than the hub names",
            "a proxy or a mirror changes it: try another network, or unset HF_ENDPOINT",
        )

    def _rest(self, part: Part, file: Path) -> None:
        """Append what a file lacks."""
        with file.open("ab") as kept:
            start = kept.tell()
            if start > part.size:
                kept.truncate(0)
                start = 0
            self._count(start)
            counted = start
            try:
                if start == part.size:
                    return
                with self.where.opened(self.repository, self.commit, part, start) as (place, pieces):
                    if place != start:
                        kept.truncate(place)
                        self._count(place - start)
                        start = counted = place
                    for piece in pieces:
                        counted += kept.write(piece)
                        self._count(len(piece))
                        if counted > part.size:
                            raise StackError(f"{part.name} is larger than the hub says", "unset HF_ENDPOINT, or ask its owner")
                        if self.given_up.is_set():
                            raise _GivenUpError
                kept.flush()
                os.fsync(kept.fileno())
            except bounded_http.BROKEN as broken:
                if isinstance(broken, OSError) and broken.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                raise PassingError(f"the download of {part.name} breaks off ({type(broken).__name__})") from broken
            finally:
                if counted != part.size:
                    self._count(-counted)
            if counted != part.size:
                raise PassingError(f"the download of {part.name} ends too early")

    def _count(self, size: int) -> None:
        with self._lock:
            self.arrived += size


class _GivenUpError(Exception):
    """Raised in a thread whose file nobody waits for any more."""


def _tried(repository: str, call: Callable[[], _T], arrived: Callable[[], int]) -> _T:
    """Call until it succeeds; give up after some attempts in a row that brought nothing.

    Raises:
        StackError: It fails for a reason that another attempt does not change, or the network is lost.

    """
    attempts, before = 0, arrived()
    while True:
        try:
            return call()
        except PassingError as failed:
            now = arrived()
            attempts = 1 if now > before else attempts + 1
            before = now
            if attempts >= _ATTEMPTS:
                raise StackError(
                    f"{repository} cannot be downloaded ({failed})", f"check the network, then {_AGAIN}"
                ) from failed
        time.sleep(_FIRST_PAUSE * 2 ** (attempts - 1))


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Explain a full disk, and a folder that cannot be written."""
    try:
        yield
    except OSError as failed:
        if failed.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StackError("the disk is full", f"make room, then {_AGAIN}") from failed
        raise StackError(
            f"{failed.filename} cannot be written ({failed.strerror})", "check its rights, or set HF_HOME"
        ) from failed


def _demand_room(blobs: Path, files: tuple[Part, ...]) -> None:
    """Refuse a download that the disk has no room for."""
    wanted = sum(part.size - _present(blobs, part) for part in files)
    free = shutil.disk_usage(blobs).free
    if wanted > 0 and free < wanted + _SPARE:
        raise StackError(
            f"the model takes {wanted / 1e9:.1f} GB more, and {blobs} has {free / 1e9:.1f} GB free",
            "make room, or name a folder on another disk in HF_HOME",
        )


def _present(blobs: Path, part: Part) -> int:
    """Count the bytes of a file that are there, whole or not."""
    for file in (blobs / part.hash, blobs / f"{part.hash}{_PART}"):
        with contextlib.suppress(OSError):
            return min(file.stat().st_size, part.size)
    return 0
