# SPDX-License-Identifier: Apache-2.0
"""Run a program that is not trusted to end: its time and its output are limited."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_AT_ONCE = 2**16


class TooMuchError(Exception):
    """Raised when a program prints more than the limit."""


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended: exit code, output, and what it printed on stderr."""

    code: int
    output: bytes
    errors: bytes


def run(
    command: Sequence[str],
    *,
    largest: int,
    seconds: float | None = None,
    input_: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Done:
    """Run a program, and return what it prints: at most `largest` bytes on each stream. It is killed with all that it has started.

    Raises:
        FileNotFoundError: There is no such program.
        TimeoutError: It has not ended after `seconds`.
        TooMuchError: It prints more.

    """
    end = time.monotonic() + seconds if seconds is not None else None
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,  # what it has started has its pipes, too
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        threads = [threading.Thread(target=_write, args=(process.stdin, input_), daemon=True)]
        streams = [_Stream(each, largest, process) for each in (process.stdout, process.stderr)]
        threads += [threading.Thread(target=each.take, daemon=True) for each in streams]
        for thread in threads:
            thread.start()
        try:
            for thread in threads[1:]:
                thread.join(_left(end))
                if thread.is_alive():
                    raise TimeoutError
            code = process.wait(_left(end))
        except subprocess.TimeoutExpired as late:
            raise TimeoutError from late
        finally:
            _kill(process)
            for thread in threads:
                thread.join()
    if any(each.is_over for each in streams):
        raise TooMuchError
    return Done(code, bytes(streams[0].held), bytes(streams[1].held))


def _left(end: float | None) -> float | None:
    return None if end is None else max(0.0, end - time.monotonic())


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):  # all have ended
        os.killpg(process.pid, signal.SIGKILL)


def line(stream: IO[bytes], seconds: float, process: "subprocess.Popen[bytes]", largest: int = 4096) -> bytes:
    """Read a line from a program; kill the program if none comes in time, and return what has come."""
    timer = threading.Timer(max(0.0, seconds), process.kill)
    timer.start()
    try:
        return stream.readline(largest)
    finally:
        timer.cancel()


class _Stream:
    """A stream of a program, read by a thread up to a limit, beyond which the program is killed."""

    def __init__(self, stream: IO[bytes], largest: int, process: "subprocess.Popen[bytes]") -> None:
        self.held, self.is_over = bytearray(), False
        self._stream, self._largest, self._process = stream, largest, process

    def take(self) -> None:
        """Read it to its end, or up to the limit."""
        while piece := self._stream.read1(_AT_ONCE):  # type: ignore[attr-defined]  # a pipe's reader has it
            if len(self.held) + len(piece) > self._largest:
                self.is_over = True
                _kill(self._process)
                return
            self.held += piece


def _write(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError):  # it has ended
        stream.write(data)
    with contextlib.suppress(OSError):
        stream.close()
