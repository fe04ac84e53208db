# SPDX-License-Identifier: Apache-2.0
"""Download a model's revision into Hugging Face's cache: what is there is kept, and what arrives is compared with the hub's hashes."""

import contextlib
import errno
import fnmatch
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.base.text import shortened
from stack.owner import hub
from stack.owner.hub import Part

_T = TypeVar("_T")
_ATTEMPTS = 5
"""Attempts without a new byte before a download gives up."""
_AGAIN = "run the command again: it goes on where it was"
_FIRST_PAUSE = 1.0
_POLLED = 0.5
_SPARE = 2**30
"""Bytes that stay free beside a model."""
_WORKERS = 4


def cached(repository: str, revision: str | None) -> Path | None:
    """Return the folder of a revision in the cache, whole or not; None if there is nothing of it."""
    folder = _folder(repository)
    if revision is None:
        with contextlib.suppress(OSError):
            revision = (folder / "refs/main").read_text(encoding="ascii").strip()
    snapshot = folder / "snapshots" / revision if revision else None
    return snapshot.resolve() if snapshot is not None and snapshot.is_dir() else None


def is_offline() -> bool:
    """Return whether HF_HUB_OFFLINE forbids the network."""
    from huggingface_hub import constants  # noqa: PLC0415

    return bool(constants.HF_HUB_OFFLINE)


def download(repository: str, revision: str | None, tell: Progress) -> Path:
    """Download what a revision lacks in the cache, and return its folder.

    Raises:
        StackError: The hub does not answer or refuses, the disk is full, or the files that arrive are not those that it names.

    """
    commit, files = _listed(repository, revision)
    blobs = _folder(repository) / "blobs"
    _demand_room(blobs, files)
    for _ in range(2):  # a second time for what arrived damaged
        snapshot = _downloaded(repository, commit, files, blobs, tell)
        bad = hub.damaged(snapshot, files, tell)
        if not bad:
            return snapshot
        drop(snapshot, bad)
    raise StackError(
        f"{bad[0]} of {repository} arrives with other bytes than the hub names",
        "a proxy or a mirror changes it: try another network, or unset HF_ENDPOINT",
    )


def drop(snapshot: Path, names: tuple[str, ...]) -> None:
    """Remove damaged files of a snapshot, and their blobs: they are downloaded again."""
    for name in names:
        link = snapshot / name
        blob = link.resolve()
        if link.is_symlink() and blob.is_relative_to(snapshot.resolve().parents[1]):
            blob.unlink(missing_ok=True)
        link.unlink(missing_ok=True)


def _folder(repository: str) -> Path:
    from huggingface_hub import constants  # noqa: PLC0415

    return Path(constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _listed(repository: str, revision: str | None) -> tuple[str, tuple[Part, ...]]:
    """Ask the hub for the commit and the files of a revision."""
    from huggingface_hub import HfApi  # noqa: PLC0415

    info = _tried(repository, lambda: HfApi().model_info(repository, revision=revision, files_metadata=True), lambda: 0)
    if not info.sha or (revision is not None and info.sha != revision):
        raise StackError(
            f"the hub answers {revision} of {repository} with another revision", "unset HF_ENDPOINT, or ask its owner"
        )
    found = []
    for file in info.siblings or ():
        name, lfs = file.rfilename, file.lfs
        if any(fnmatch.fnmatchcase(name, form) for form in hub.WANTED) and "/" not in name:
            hashed = lfs.sha256 if lfs is not None else file.blob_id
            if not hashed or file.size is None:
                raise StackError(f"the hub names no hash of {name} of {repository}", "unset HF_ENDPOINT, or ask its owner")
            found.append(Part(name, file.size, hashed))
    if not any(part.name.endswith(".safetensors") for part in found):
        raise StackError(f"{repository} has no weights in safetensors", "name the folder of a checkpoint with --model")
    return info.sha, tuple(found)


def _downloaded(repository: str, commit: str, files: tuple[Part, ...], blobs: Path, tell: Progress) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.utils import disable_progress_bars  # noqa: PLC0415

    disable_progress_bars()
    names = [part.name for part in files]
    with _progress(blobs, files, f"downloading {repository}", tell):
        folder = _tried(
            repository,
            lambda: snapshot_download(repository, revision=commit, allow_patterns=names, max_workers=_WORKERS),
            lambda: _arrived(blobs, files),
        )
    return Path(folder).resolve()


def _tried(repository: str, call: Callable[[], _T], arrived: Callable[[], int]) -> _T:
    """Call until it succeeds; give up after some attempts in a row that brought nothing.

    Raises:
        StackError: It fails for a reason that another attempt does not change, or the network is lost.

    """
    attempts, before = 0, arrived()
    while True:
        try:
            return call()
        except Exception as failed:
            error, is_final = _explained(repository, failed)
            now = arrived()
            attempts = 1 if now > before else attempts + 1
            before = now
            if is_final or attempts >= _ATTEMPTS:
                raise error from failed
        time.sleep(_FIRST_PAUSE * 2 ** (attempts - 1))


def _explained(repository: str, failed: Exception) -> tuple[StackError, bool]:
    """Return the error for a failure of the hub's client, and whether another attempt is useless."""
    from huggingface_hub import errors  # noqa: PLC0415

    # In this order: an error of a gated repository is also one of a repository that is not found.
    final: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
        (errors.GatedRepoError, f"{repository} wants its terms accepted", "accept them on its page, then set HF_TOKEN"),
        (
            (errors.RepositoryNotFoundError, errors.RevisionNotFoundError),
            f"the hub has no {repository} of this revision for you",
            "check the name, and HF_TOKEN if it is private",
        ),
        (
            errors.OfflineModeIsEnabled,
            f"{repository} is not whole in the cache, and HF_HUB_OFFLINE is set",
            "unset it, or name a folder with --model",
        ),
        (PermissionError, f"{getattr(failed, 'filename', '')} cannot be written", "check its rights, or set HF_HOME"),
    )
    if isinstance(failed, StackError):
        return failed, True
    if isinstance(failed, OSError) and failed.errno == errno.ENOSPC:
        return StackError("the disk is full", f"make room, then {_AGAIN}"), True
    for kind, problem, remedy in final:
        if isinstance(failed, kind):
            return StackError(problem, remedy), True
    reason = shortened(" ".join(f"{type(failed).__name__}: {failed}".split()), 200)
    return StackError(f"{repository} cannot be downloaded ({reason})", f"check the network, then {_AGAIN}"), False


def _demand_room(blobs: Path, files: tuple[Part, ...]) -> None:
    """Refuse a download that the disk has no room for."""
    place = next(folder for folder in (blobs, *blobs.parents) if folder.is_dir())
    wanted = sum(part.size for part in files) - _arrived(blobs, files)
    free = shutil.disk_usage(place).free
    if wanted > 0 and free < wanted + _SPARE:
        raise StackError(
            f"the model takes {wanted / 1e9:.1f} GB more, and {place} has {free / 1e9:.1f} GB free",
            "make room, or name a folder on another disk in HF_HOME",
        )


def _arrived(blobs: Path, files: tuple[Part, ...]) -> int:
    """Count the bytes of a revision that are in the cache, with those of unfinished files."""
    size = 0
    for part in files:
        for file in (blobs / part.hash, *blobs.glob(f"{part.hash}*.incomplete")):
            with contextlib.suppress(OSError):
                size += min(file.stat().st_size, part.size)
                break
    return size


@contextlib.contextmanager
def _progress(blobs: Path, files: tuple[Part, ...], step: str, tell: Progress) -> Iterator[None]:
    """Report how much of a revision is in the cache while the block runs."""
    ended, total = threading.Event(), sum(part.size for part in files)

    def watch() -> None:
        while not ended.wait(_POLLED):
            tell(step, _arrived(blobs, files), total)

    tell(step, _arrived(blobs, files), total)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
