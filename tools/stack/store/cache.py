# SPDX-License-Identifier: Apache-2.0
"""Where downloaded and imported sources live, and the lock that keeps two processes apart."""

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
"""What the name of a lock file has more than what it protects."""
PART = ".part"
"""How the names of files end that are still being written."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
"""Names of upstreams, packages and archives become file names; nothing else may come of them."""


def root(override: Path | None = None) -> Path:
    """The cache folder: `override`, else `$STACK_CACHE`, else the user's cache folder of this system."""
    if override is not None:
        return override.expanduser().absolute()
    named = os.environ.get("STACK_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    import platformdirs  # noqa: PLC0415  (a command with --cache does not need it)

    return platformdirs.user_cache_path("stack", appauthor=False)


def upstream_store(cache: Path, upstream: str) -> Path:
    """Where the bare repository of `upstream` lives.

    Raises:
        StackError: the name cannot be a file name.

    """
    return cache / "upstreams" / f"{_safe(upstream)}.git"


def archives(cache: Path, package: str) -> Path:
    """The folder of the source archives of `package`.

    Raises:
        StackError: the name cannot be a file name.

    """
    return cache / "archives" / _safe(package)


def wheels(cache: Path, package: str) -> Path:
    """The folder of the published wheels of `package`.

    Raises:
        StackError: the name cannot be a file name.

    """
    return cache / "wheels" / "published" / _safe(package)


def archive(cache: Path, package: str, filename: str) -> Path:
    """Where the source archive `filename` of `package` lives.

    Raises:
        StackError: a name cannot be a file name.

    """
    return archives(cache, package) / _safe(filename)


@contextmanager
def lock(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold the lock file beside `path` for as long as the block runs; the system frees it when the process dies.

    The block gets the file's descriptor: a process that inherits it (`pass_fds`) holds the lock, too, as long as it lives.

    Its time says when what lies there was last used.

    Args:
        path: what is protected; it need not exist.
        waiting: called once when another process holds the lock.

    Raises:
        StackError: the lock file cannot be made.

    """
    handle = _lock_file(path)
    try:
        if not files.lock_if_free(handle, path):
            if waiting is not None:
                waiting()
            # Asked for again and again: Ctrl-C that comes just before a call that blocks would wait for the lock, too.
            while not files.lock_if_free(handle, path):
                time.sleep(0.05)
        os.utime(handle)  # what has not been used for long is what a full disk loses first
        yield handle
    finally:
        os.close(handle)


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock file beside `path`, unless another process does; whether it is held.

    Raises:
        StackError: the lock file cannot be made.

    """
    handle = _lock_file(path)
    try:
        yield files.lock_if_free(handle, path)
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
    """A file to write, beside its place: it appears there when the block ends well, whole and on disk; else it never does.

    Raises:
        OSError: it cannot be written, or something else than a file is in its place.

    """
    # Root may put a file in the place of anything but a folder, of /dev/null, too.
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "is no file, but something else", str(target))
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
    """Write a small file; it appears under its name when it is whole.

    Raises:
        OSError: it cannot be written.

    """
    with appearing(target) as file:
        file.write(data)


def hash_of(path: Path) -> Sha256:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return Sha256(hashlib.file_digest(file, "sha256").hexdigest())


def unwritable(place: Path, error: OSError) -> StackError:
    """The error that a failed write at `place` becomes."""
    return StackError(
        f"cannot write {place}: {error.strerror or error}",
        "free some disk space (`stack cache prune`), or name another cache folder in STACK_CACHE, and run the command again",
    )


def _safe(name: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise StackError(f"{name!r} cannot be a file name in the cache", "use letters, digits, '.', '_', '-' and '+'")
    return name
