# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs. A checkout is not trusted: no link in it decides where a log is written, and no job's output is without end."""

import os
import subprocess
from pathlib import Path
from typing import IO

from stack.base import files
from stack.matrix.job import Job

LARGEST = 256 << 20
"""Bytes of a log at which its job is ended: they would fill the disk."""
_FOLDER = (".stack", "matrix", "logs")
_READ = 64 << 10
"""Bytes at the end of a log in which its last line is looked for."""
_ENDING = 20
"""Seconds that the processes of a job get to end."""


def path(root: Path, job: Job) -> Path:
    """Return the path of a job's log."""
    return root.joinpath(*_FOLDER, f"{job.name}.log")


def create(root: Path, job: Job) -> IO[bytes]:
    """Open a new log in place of an earlier one, with its first line.

    Raises:
        NotPlain: Its folder is a link.
        OSError: It cannot be written.

    """
    with files.opened(root) as top, top.below(*_FOLDER, create=True) as folder:
        folder.remove(f"{job.name}.log")
        log = os.fdopen(folder.open(f"{job.name}.log", os.O_RDWR | os.O_CREAT | os.O_EXCL), "w+b")
    begin(log, job)
    return log


def write(root: Path, job: Job, text: bytes) -> None:
    """Write the log that another machine sent.

    Raises:
        NotPlain: Its folder is a link.
        OSError: It cannot be written.

    """
    with files.opened(root) as top, top.below(*_FOLDER, create=True) as folder:
        folder.write(f"{job.name}.log", text)


def begin(log: IO[bytes], job: Job) -> None:
    """Write the first line of a log: the command."""
    log.write(f"$ {job.command}\n".encode())
    log.flush()


def bound(log: IO[bytes], process: "subprocess.Popen[bytes]") -> None:
    """End a process whose log has become too large, and say so at the end of the log."""
    if os.fstat(log.fileno()).st_size <= LARGEST:
        return
    end(process)
    log.seek(0, os.SEEK_END)
    log.write(f"\nended, since its output has more than {LARGEST} bytes\n".encode())
    log.flush()


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, if need be by force."""
    process.terminate()
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: IO[bytes], most: int = _READ) -> bytes:
    """Return the last bytes of a log."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - most))
    return log.read(most)
