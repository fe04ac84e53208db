# SPDX-License-Identifier: Apache-2.0
"""Replace a cache that cannot be written by a temporary one that reads from it, so that only speed is lost."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LEAST = 16 << 20
"""Bytes that must be free; a carry writes a few MiB."""
_STORES, _MOVING = "upstreams", "moving-"
"""The folder of the repositories, and the name prefix of folders in `trees` that change in place."""
_DEEP = {"archives": 2, "results": 2, "wheels": 3}
"""Levels of folders that receive new files, by folder; elsewhere an entry is linked as a whole."""
_OF_A_STORE = ("HEAD", "config", "packed-refs")


@contextmanager
def usable(home: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    """Yield the cache folder, or a temporary one that borrows from it if it cannot be written.

    Args:
        home: The cache folder; it need not exist.
        tell: Receives a sentence for the user if the folder cannot be written.

    Raises:
        OSError: The temporary folder cannot be made.

    """
    why = unwritable(home)
    if why is None:
        yield home
        return
    tell(f"the cache {home} {why}: what this command downloads and computes is not kept")
    with tempfile.TemporaryDirectory(prefix="stack-cache-", ignore_cleanup_errors=True) as place:
        _borrow(home, Path(place))
        yield Path(place)


def unwritable(home: Path) -> str | None:
    """Return why nothing can be written into a folder, or into its nearest existing parent; None if it can.

    A file in the folder's place gives None, too: the writer will report that.
    """
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    if not existing.is_dir():
        return None
    system = os.statvfs(existing)
    if system.f_flag & os.ST_RDONLY:
        return "is on a read-only file system"
    if not os.access(existing, os.W_OK | os.X_OK):
        return "cannot be written by this user"
    if system.f_bavail * system.f_frsize < _LEAST:
        return f"is full ({system.f_bavail * system.f_frsize >> 20} MiB are free)"
    return None


def _borrow(home: Path, place: Path) -> None:
    for folder in (entry for entry in _entries(home) if entry.is_dir()):
        if folder.name == _STORES:
            for store in folder.glob("*.git"):
                _borrow_store(store, place / _STORES / store.name)
        else:
            _link(folder, place / folder.name, _DEEP.get(folder.name, 1))


def _link(folder: Path, place: Path, levels: int) -> None:
    """Make a folder whose entries, `levels` deep, link to those of another folder."""
    place.mkdir(parents=True)
    for entry in _entries(folder):
        if levels > 1 and entry.is_dir():
            _link(entry, place / entry.name, levels - 1)
        elif not entry.name.startswith(_MOVING):
            (place / entry.name).symlink_to(entry.absolute())


def _borrow_store(store: Path, place: Path) -> None:
    """Make a repository with the refs of `store`, which reads the store's objects and writes its own."""
    (place / "objects/info").mkdir(parents=True)
    (place / "objects/info/alternates").write_text(f"{store.absolute()}/objects\n")
    shutil.copytree(store / "refs", place / "refs")
    for name in _OF_A_STORE:
        if (store / name).is_file():
            shutil.copyfile(store / name, place / name)


def _entries(folder: Path) -> list[Path]:
    """List a folder's entries without lock files, sorted; empty if the folder is missing."""
    return [entry for entry in sorted(folder.iterdir()) if entry.suffix != ".lock"] if folder.is_dir() else []
