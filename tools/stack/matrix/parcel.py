# SPDX-License-Identifier: Apache-2.0
"""Send the files of a stack to another machine, and bring the files that a job leaves back."""

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from stack.base import files
from stack.base.errors import StackError
from stack.matrix import kept
from stack.matrix.job import Job
from stack.store import git

_LARGEST = 256 << 20
"""Bytes of the largest stack that is sent: a stack is patches and texts."""
LARGEST = 2 << 30
"""Bytes of the files that one job may leave."""


def pack(root: Path) -> bytes:
    """Pack the files of a stack's folder: those of git and new ones that git does not ignore; without git all but hidden ones.

    Raises:
        StackError: They are too large.

    """
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", compresslevel=1) as archive:
        size = 0
        for path in _paths(root):
            file = root / path
            if file.is_file() and not file.is_symlink():
                size += file.stat().st_size
                if size > _LARGEST:
                    raise StackError(
                        f"the files of {root} are larger than {_LARGEST >> 20} MiB", "let git ignore what is not of the stack"
                    )
                _add(archive, file, path)
    return made.getvalue()


def unpack(packed: bytes, folder: Path) -> None:
    """Unpack the files of a stack into a folder."""
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def outputs(root: Path, job: Job) -> bytes:
    """Pack the files that a job left.

    Raises:
        StackError: They are too large to be sent.

    """
    left = [*kept.left(root, job)]
    if sum(file.stat().st_size for file in left) > LARGEST:
        raise StackError(f"the files of {job.name} are larger than {LARGEST >> 30} GiB", "run this job with --local")
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for file in left:
            _add(archive, file, file.relative_to(root).as_posix())
    return made.getvalue()


def bring(packed: bytes, root: Path, job: Job) -> None:
    """Write the files that a job left on another machine; each appears under its name when it is complete.

    Raises:
        StackError: A file is not one that the job may leave, they are too large, or a folder here is a link.

    """
    try:
        with files.opened(root) as top, tarfile.open(fileobj=io.BytesIO(packed), mode="r:") as archive:
            room = LARGEST
            for member in archive:
                room -= member.size
                if room < 0:
                    raise StackError(f"{job.name} sent more than {LARGEST >> 30} GiB", "look at that machine")
                data = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                if data is None or not _is_below(member.name, job.outputs):
                    raise StackError(
                        f"{job.name} sent {member.name!r:.200}, which is none of its files", "look at that machine"
                    )
                _write(top, PurePosixPath(member.name), data.read())
    except (tarfile.TarError, ValueError, EOFError) as bad:
        raise StackError(f"{job.name} sent files that cannot be unpacked", "look at that machine") from bad


def _write(top: files.Folder, path: PurePosixPath, data: bytes) -> None:
    """Write a file below a folder; no link in it is followed."""
    with top.below(*path.parts[:-1], create=True) as folder:
        folder.write(f".{path.name}.part", data)
        folder.move(f".{path.name}.part", folder, path.name)


def _is_below(name: str, folders: Iterable[str]) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and any(path.is_relative_to(folder) for folder in folders)


def _paths(root: Path) -> Iterator[str]:
    """Yield the paths of a stack's files below its folder, sorted."""
    listed = git.run(["ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, accept=(0, 128))
    if listed.returncode == 0:
        names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
        yield from sorted(name for name in names if not _is_below(name, (".stack",)))
        return
    for place, folders, found in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        yield from (Path(place, name).relative_to(root).as_posix() for name in sorted(found))


def _add(archive: tarfile.TarFile, file: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    data = file.read_bytes()
    info.size, info.mode = len(data), 0o755 if os.access(file, os.X_OK) else 0o644
    archive.addfile(info, io.BytesIO(data))
