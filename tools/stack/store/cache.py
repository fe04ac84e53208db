# SPDX-License-Identifier: Apache-2.0
"""Paths of downloaded and imported sources, and the lock that keeps processes apart."""

import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from stack.base import files
from stack.base.errors import StackError
from stack.model.ids import Sha256

LOCK = ".lock"
"""The suffix that a lock file adds to the name of the protected path."""
PART = ".part"
"""The suffix of files that are still being written."""
_LOOKED = 0.05
"""Seconds between two looks at a lock."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
"""Allowed names of upstreams, packages and archives: they become file names and must not lead elsewhere."""


def root(override: Path | None = None) -> Path:
    """Return the cache folder: `override`, else `$STACK_CACHE`, else the system's cache folder for this user."""
    if override is not None:
        return override.expanduser().absolute()
    named = os.environ.get("STACK_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs  # noqa: PLC0415  (commands with --cache do not need it)

    return platformdirs.user_cache_path("stack", appauthor=False)


def upstream_store(cache: Path, upstream: str) -> Path:
    """Return the path of the bare repository of `upstream`.

    Raises:
        StackError: The name cannot be a file name.

    """
    return cache / "upstreams" / f"{_safe(upstream)}.git"


def archives(cache: Path, package: str) -> Path:
    """Return the folder of the source archives of `package`.

    Raises:
        StackError: The name cannot be a file name.

    """
    return cache / "archives" / _safe(package)


def wheels(cache: Path, package: str) -> Path:
    """Return the folder of the published wheels of `package`.

    Raises:
        StackError: The name cannot be a file name.

    """
    return cache / "wheels" / "published" / _safe(package)


def archive(cache: Path, package: str, filename: str) -> Path:
    """Return the path of the source archive `filename` of `package`.

    Raises:
        StackError: A name cannot be a file name.

    """
    return archives(cache, package) / _safe(filename)


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the lock file beside `path` while the block runs; the system frees it if the process dies.

    Yields the lock file's descriptor: a process that inherits it (`pass_fds`) also holds the lock as long as it lives.

    The lock file's modification time records when `path` was last used.

    Args:
        path: The protected path; it need not exist.
        waiting: Called once if another process holds the lock.

    Raises:
        StackError: The lock file cannot be made.

    """
    handle = _lock_file(path)
    try:
        if not files.lock_if_free(handle, path):
            if waiting is not None:
                waiting()
            # Poll instead of blocking: Ctrl-C just before a blocking call would be delayed until the lock is free.
            while not files.lock_if_free(handle, path):
                time.sleep(_LOOKED)
        os.utime(handle)  # `stack cache prune` removes what was not used for long
        yield handle
    finally:
        os.close(handle)


@contextmanager
def lock_if_free(path: Path, patience: float = 0.0) -> Iterator[bool]:
    """Hold the lock file beside `path` unless another process does for more than `patience` seconds; yield whether it is held.

    Raises:
        StackError: The lock file cannot be made.

    """
    handle = _lock_file(path)
    until = time.monotonic() + patience
    try:
        while not (held := files.lock_if_free(handle, path)) and time.monotonic() < until:
            time.sleep(_LOOKED)
        yield held
    finally:
        os.close(handle)


def _lock_file(path: Path) -> int:
    place = path.with_name(f"{path.name}{LOCK}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise unwritable(place, error) from error


@contextmanager
def appearing(target: Path, rights: int = 0o644) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `target`, whole and on disk, if the block succeeds; otherwise it is removed.

    Raises:
        OSError: The file cannot be written, or `target` is something other than a file.

    """
    # Without this check root could replace even /dev/null.
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "exists, but is not a file", str(target))
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=PART, dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.chmod(rights)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def put(target: Path, data: bytes) -> None:
    """Write a small file; it appears under its name only when it is complete.

    Raises:
        OSError: The file cannot be written.

    """
    with appearing(target) as file:
        file.write(data)


def hash_of(path: Path) -> Sha256:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return Sha256(hashlib.file_digest(file, "sha256").hexdigest())


def unwritable(place: Path, error: OSError) -> StackError:
    """Build the error for a failed write at `place`."""
    return StackError(
        f"cannot write {place}: {error.strerror or error}",
        "free some disk space (`stack cache prune`), or name another cache folder in STACK_CACHE, and run the command again",
    )


def _safe(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise StackError(f"{name!r} cannot be a file name in the cache", "use letters, digits, '.', '_', '-' and '+'")
    return name
