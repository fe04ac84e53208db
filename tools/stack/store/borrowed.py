# SPDX-License-Identifier: Apache-2.0
"""A cache that cannot be written costs speed and nothing else: a temporary one takes its place, and reads what is in it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LEAST = 16 << 20
"""Bytes that have to be free: a carry writes some of them."""
_STORES, _MOVING = "upstreams", "moving-"
"""The folder of the repositories, and how the names of folders in `trees` begin that change in place."""
_DEEP = {"archives": 2, "wheels": 3}
"""How many levels of folders files lie deep where more files come to them; everywhere else a folder is one entry."""
_OF_A_STORE = ("HEAD", "config", "packed-refs")


@contextmanager
def usable(home: Path, tell: Callable[[str], None]) -> Iterator[Path]:
    """Give the cache folder, or a temporary one that borrows from it where it cannot be written.

    Args:
        home: the cache folder; it need not exist.
        tell: gets a sentence for the user where it cannot be written.

    Raises:
        OSError: the temporary folder cannot be made.

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
    """Say why nothing can be written into a folder, or into the nearest that exists above it; None if it can.

    A file in its place is an error of whoever writes.
    """
    there = next(one for one in (home, *home.parents) if one.exists())
    if not there.is_dir():
        return None
    system = os.statvfs(there)
    if system.f_flag & os.ST_RDONLY:
        return "is on a read-only file system"
    if not os.access(there, os.W_OK | os.X_OK):
        return "cannot be written by this user"
    if system.f_bavail * system.f_frsize < _LEAST:
        return f"is full ({system.f_bavail * system.f_frsize >> 20} MiB are free)"
    return None


def _borrow(home: Path, place: Path) -> None:
    for folder in (one for one in _entries(home) if one.is_dir()):
        if folder.name == _STORES:
            for store in folder.glob("*.git"):
                _borrow_store(store, place / _STORES / store.name)
        else:
            _link(folder, place / folder.name, _DEEP.get(folder.name, 1))


def _link(folder: Path, place: Path, levels: int) -> None:
    """Make a folder whose entries, `levels` deep, are links to another's."""
    place.mkdir(parents=True)
    for entry in _entries(folder):
        if levels > 1 and entry.is_dir():
            _link(entry, place / entry.name, levels - 1)
        elif not entry.name.startswith(_MOVING):
            (place / entry.name).symlink_to(entry.absolute())


def _borrow_store(store: Path, place: Path) -> None:
    """Make a repository with another's refs, which reads the other's objects and writes its own."""
    (place / "objects/info").mkdir(parents=True)
    (place / "objects/info/alternates").write_text(f"{store.absolute()}/objects\n")
    shutil.copytree(store / "refs", place / "refs")
    for name in _OF_A_STORE:
        if (store / name).is_file():
            shutil.copyfile(store / name, place / name)


def _entries(folder: Path) -> list[Path]:
    """List what is in a folder, without the lock files."""
    return [one for one in sorted(folder.iterdir()) if one.suffix != ".lock"] if folder.is_dir() else []
