# SPDX-License-Identifier: Apache-2.0
"""What the cache holds, and taking out what has not been used for long: all of it can be had or made again.

What has a lock file beside it, in one of the cache's own folders, is one entry; the lock file's time says when it was last used.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.store import cache as places

ENTRIES = {
    "archives": ("*/*",),
    "compilers": ("*",),
    "compiling": ("*",),
    "emulated": ("*",),
    "environments": ("*",),
    "images": ("*", "locks/*", "packages/*"),
    "landing": ("*",),
    "operators": ("*",),
    "results": ("*/*",),
    "serving": ("*",),
    "trees": ("*",),
    "upstreams": ("*",),
    "wheels": ("*", "building/*", "built/*", "published/*/*"),
}
"""Where entries stand. Nothing else is looked at: who names a folder in STACK_CACHE that has other things in it keeps them."""
_UNLOCKED = "results"
"""Small files that appear whole and that anyone may lose at any moment: they have no locks."""
_STORES = "upstreams"
"""The stores stay: the commits that undo and open working trees stand on are in them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in the cache: `size` in bytes on the disk, `used` in seconds since the epoch, `kind` the cache's folder."""

    path: Path
    kind: str
    size: int
    used: float


def entries(cache: Path, tell: Callable[[str, int, int | None], None] = lambda *_: None) -> tuple[Entry, ...]:
    """All that a cache folder holds, the largest first; its stores are among it and never taken out."""
    found = list(_protected(cache))
    held = []
    for done, (path, used) in enumerate(found):
        tell("measuring the cache", done, len(found))
        held.append(Entry(path, _kind(cache, path), _size(path), used))
    return tuple(sorted(held, key=lambda entry: (-entry.size, entry.path)))


def prune(held: Sequence[Entry], before: float, stuck: Callable[[OSError], None]) -> tuple[Entry, ...]:
    """Take out what was last used before a time (seconds since the epoch), and is not in use now.

    Args:
        held: what the cache holds.
        before: the time.
        stuck: hears of what cannot be removed; the rest goes all the same.

    Returns:
        What is gone. A run that is killed leaves an entry whole, or out of its place; the next one takes the rest.

    """
    gone = []
    for entry in held:
        try:
            if removable(entry, before) and _remove(entry, before):
                gone.append(entry)
        except OSError as error:
            stuck(error)
    return tuple(gone)


def removable(entry: Entry, before: float) -> bool:
    """Whether `prune` would take it out if nobody used it meanwhile."""
    return entry.kind != _STORES and entry.used < before


def _remove(entry: Entry, before: float) -> bool:
    path = entry.path
    if entry.kind == _UNLOCKED or _left_half(path):
        _delete(path)
        return True
    with places.lock_if_free(path) as free:
        if not free or not path.exists() or _lock_of(path).stat().st_mtime >= before:
            return False
        # What is half gone must not be taken for whole.
        leaving = path.with_name(f"{path.name}{places.PART}")
        _delete(leaving)
        path.rename(leaving)
        _delete(leaving)
    return True


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _protected(cache: Path) -> Iterator[tuple[Path, float]]:
    """What has a lock file beside it, or was left half written, with the time of its last use."""
    for folder, depths in ENTRIES.items():
        for path in sorted(path for depth in depths for path in (cache / folder).glob(depth)):
            lock = _lock_of(path)
            if _left_half(path) or folder == _UNLOCKED:
                yield path, path.lstat().st_mtime
            elif lock.is_file():
                yield path, lock.stat().st_mtime


def _left_half(path: Path) -> bool:
    """Whether it is a file of `cache.appearing` or a folder beside its lock that was never finished."""
    whole = path.with_name(path.name.removesuffix(places.PART))
    return whole != path and (path.name.startswith(".") or _lock_of(whole).is_file())


def _kind(cache: Path, path: Path) -> str:
    return path.relative_to(cache).parts[0]


def _size(path: Path) -> int:
    """Bytes that it takes on the disk."""
    total = path.lstat().st_blocks * 512
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            total += sum(os.lstat(Path(folder, name)).st_blocks * 512 for name in (*folders, *files))
    return total


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{places.LOCK}")
