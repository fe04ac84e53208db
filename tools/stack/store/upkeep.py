# SPDX-License-Identifier: Apache-2.0
"""List the cache's entries and remove those unused for long; everything in it can be fetched or made again.

An entry is a path in one of the cache's own folders with a lock file beside it, whose time tells when it was last used.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.progress import Progress, silent
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
"""Where entries can be. Anything else is left alone, so a folder in STACK_CACHE may hold other files, too."""
_UNLOCKED = "results"
"""Small files without locks: they are written atomically and may vanish at any moment."""
_STORES = "upstreams"
"""Stores are never removed: they hold the commits that undo and open working trees need."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the cache: `size` in bytes on disk, `used` in seconds since the epoch, `kind` its top folder."""

    path: Path
    kind: str
    size: int
    used: float


def entries(cache: Path, tell: Progress = silent) -> tuple[Entry, ...]:
    """List a cache folder's entries, largest first; this includes stores, which are never removed."""
    protected = list(_protected(cache))
    held = []
    for done, (path, used) in enumerate(protected):
        tell("measuring the cache", done, len(protected))
        held.append(Entry(path, _kind(cache, path), _size(path), used))
    return tuple(sorted(held, key=lambda entry: (-entry.size, entry.path)))


def prune(held: Sequence[Entry], before: float, stuck: Callable[[OSError], None]) -> tuple[Entry, ...]:
    """Remove entries last used before a time (in seconds since the epoch) and not in use now.

    Args:
        held: The cache's entries.
        before: The time.
        stuck: Called with the error of an entry that cannot be removed; the others still are.

    Returns:
        The removed entries. A kill leaves an entry whole or renamed; the next run removes the rest.

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
    """Tell whether `prune` would remove an entry if nobody used it meanwhile."""
    return entry.kind != _STORES and entry.used < before


def _remove(entry: Entry, before: float) -> bool:
    path = entry.path
    if entry.kind == _UNLOCKED or _left_half(path):
        _delete(path)
        return True
    with places.lock_if_free(path) as free:
        if not free or not path.exists() or _lock_of(path).stat().st_mtime >= before:
            return False
        # Rename first: a half removed entry must not look complete.
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
    """Yield paths with a lock file, and leftovers of unfinished writes, each with the time of its last use."""
    for folder, depths in ENTRIES.items():
        for path in sorted(path for depth in depths for path in (cache / folder).glob(depth)):
            lock = _lock_of(path)
            if _left_half(path) or folder == _UNLOCKED:
                yield path, path.lstat().st_mtime
            elif lock.is_file():
                yield path, lock.stat().st_mtime


def _left_half(path: Path) -> bool:
    """Tell whether a path is an unfinished file of `cache.appearing`, or an unfinished folder beside its lock."""
    whole = path.with_name(path.name.removesuffix(places.PART))
    return whole != path and (path.name.startswith(".") or _lock_of(whole).is_file())


def _kind(cache: Path, path: Path) -> str:
    return path.relative_to(cache).parts[0]


def _size(path: Path) -> int:
    """Return the bytes that a path takes on disk."""
    total = path.lstat().st_blocks * 512
    if path.is_dir() and not path.is_symlink():
        for folder, folders, files in os.walk(path):
            total += sum(os.lstat(Path(folder, name)).st_blocks * 512 for name in (*folders, *files))
    return total


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{places.LOCK}")
