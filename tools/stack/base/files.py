# SPDX-License-Identifier: Apache-2.0
"""Read and write files in an untrusted folder: never through a link, a named pipe or a device."""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError

_LARGEST = 256 << 20
"""Bytes of the largest file that is read; what a switch keeps of a patch is at most 32 MiB."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotPlain(StackError):
    """Raised for a link, a named pipe, a socket or a device where a file or a folder is expected."""

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(f"{path} is {kind}", "put the file or folder itself there")


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder. Names are resolved relative to its descriptor, so no link in the path can redirect them."""

    path: Path
    descriptor: int

    @contextlib.contextmanager
    def below(self, *names: str, create: bool = False) -> "Iterator[Folder]":
        """Open a folder below this one.

        Raises:
            NotPlain: One of the names is a link.
            OSError: One of the names is missing or not a folder.

        """
        here, opened = self, []
        try:
            for name in names:
                here = here._open_folder(name, create=create)
                opened.append(here.descriptor)
            yield here
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _open_folder(self, name: str, *, create: bool) -> "Folder":
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.descriptor)
        try:
            return Folder(self.path / name, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.descriptor))
        except OSError:
            self._check_no_link(name)
            raise

    def open(self, name: str, flags: int) -> int:
        """Open a regular file; return its descriptor.

        Raises:
            NotPlain: The name is anything but a regular file.
            OSError: The file is missing or cannot be opened.

        """
        try:
            # Without O_NONBLOCK, opening a named pipe waits for its other end.
            safe = flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, safe, 0o666, dir_fd=self.descriptor)
        except OSError:
            self._check_no_link(name)
            raise
        try:
            check_regular(descriptor, self.path / name)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, name: str) -> bytes | None:
        """Read a regular file of at most 256 MiB; return None if it is missing.

        Raises:
            StackError: The file is larger.

        """
        try:
            with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
                data = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        if len(data) > _LARGEST:
            raise StackError(f"{self.path / name} is larger than {_LARGEST >> 20} MiB", "it is not what stack wrote: remove it")
        return data

    def write(self, name: str, data: bytes, mode: int | None = None) -> None:
        """Write a file, replacing any of that name, and flush it to disk; `mode`: its permission bits. Default: the umask's."""
        self.remove(name)
        with os.fdopen(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def exists(self, name: str) -> bool:
        """Tell whether an entry has that name; a dangling link counts."""
        return self._mode(name) is not None

    def names(self) -> list[str]:
        """List the folder's entries, sorted."""
        with os.scandir(self.descriptor) as entries:
            return sorted(entry.name for entry in entries)

    def move(self, name: str, target: "Folder", new: str) -> None:
        """Rename a file or folder; a file of the new name is replaced."""
        os.rename(name, new, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file if it exists; for a link, the link itself."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=self.descriptor)

    def remove_tree(self, name: str) -> None:
        """Remove a folder and its contents if it exists; links are not followed."""
        if self.exists(name):
            self._check_no_link(name)
            shutil.rmtree(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Flush the folder's entries to disk."""
        os.fsync(self.descriptor)

    def _mode(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None

    def _check_no_link(self, name: str) -> None:
        if stat.S_ISLNK(self._mode(name) or 0):
            raise NotPlain(self.path / name, "a link")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Folder]:
    """Open a folder that the user named; links in its path are followed."""
    descriptor = os.open(path, _FOLDER)
    try:
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def check_regular(descriptor: int, path: Path) -> None:
    """Refuse a descriptor that is not of a regular file.

    Raises:
        NotPlain: It is a folder, a named pipe, a socket or a device.

    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        raise NotPlain(path, "a folder")
    if not stat.S_ISREG(mode):
        raise NotPlain(path, "not a regular file")


def check_plain(folder: Path) -> None:
    """Refuse a folder that holds a named pipe, a socket or a device at any depth; links are not followed.

    Raises:
        NotPlain: The folder holds such an entry.

    """
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
                raise NotPlain(path, "not a regular file")


def check_tree(folder: Path) -> None:
    """Refuse a folder that holds anything but files and folders at any depth; a missing folder is fine.

    Raises:
        NotPlain: The folder is a link, or holds a link, a named pipe, a socket or a device.

    """
    inside = (Path(place, name) for place, folders, names in os.walk(folder) for name in (*folders, *names))
    for path in (folder, *inside) if os.path.lexists(folder) else ():
        mode = path.lstat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise NotPlain(path, "a link" if stat.S_ISLNK(mode) else "not a regular file")


def lock_if_free(descriptor: int, place: Path) -> bool:
    """Lock a file without waiting; return whether that worked. The system frees the lock when its last holder ends.

    Raises:
        StackError: The file system of `place` does not support locks.

    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        remedy = "move the stack, or the cache by STACK_CACHE, to a local file system"
        raise StackError(f"{place} cannot be locked ({error.strerror})", remedy) from error
    return True
