# SPDX-License-Identifier: Apache-2.0
"""The file of `--log`: the command, each step with its time, messages of the program, and how it ended."""

import contextlib
import datetime
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.cli.rendering.text import one_line

_open: dict[Path, TextIO] = {}
"""The log files that this command has begun."""


def begin(file: Path) -> None:
    """Append the command to a file, and from now on what the command does.

    Raises:
        StackError: The file cannot be written.

    """
    if file in _open:
        return
    try:
        _open[file] = file.open("a", encoding="utf-8", errors="backslashreplace")
        _put(_open[file], f"$ stack {shlex.join(sys.argv[1:])}")
        logging.getLogger().addHandler(_Handler(file))
    except OSError as failed:
        raise StackError(f"{file} cannot be written ({failed.strerror})", "name another file with --log") from failed


def _put(stream: TextIO, line: str) -> None:
    stream.write(f"{datetime.datetime.now().astimezone().isoformat(timespec='milliseconds')} {one_line(line)}\n")
    stream.flush()


class _Handler(logging.Handler):
    """Copies the program's messages into the file, and shows warnings as without it."""

    def __init__(self, file: Path) -> None:
        super().__init__(logging.INFO)
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        _put(_open[self._file], record.getMessage())
        if record.levelno >= logging.WARNING:
            sys.stderr.write(f"{record.getMessage()}\n")


@contextlib.contextmanager
def steps(file: Path | None, tell: Progress) -> Iterator[Progress]:
    """Yield a callback that also writes each new step into the file."""
    if file is None or file not in _open:
        yield tell
        return
    said = [""]

    def both(step: str, done: int = 0, total: int | None = None, /) -> None:
        if step != said[0]:
            said[0] = step
            _put(_open[file], step)
        tell(step, done, total)

    yield both


def close(code: int) -> None:
    """Write the exit code into the log files, and close them."""
    for handler in [handler for handler in logging.getLogger().handlers if isinstance(handler, _Handler)]:
        logging.getLogger().removeHandler(handler)
    for file in list(_open):
        with contextlib.suppress(OSError), _open.pop(file) as stream:
            _put(stream, f"exit code {code}")
