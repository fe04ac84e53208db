# SPDX-License-Identifier: Apache-2.0
"""Standard streams that outlive whoever reads them: what a verb has done, and how it ended, does not depend on who looks on."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import TextIO


class _Outliving(io.TextIOWrapper):
    """A stream that goes nowhere from the moment on that nobody reads it any more."""

    def write(self, text: str, /) -> int:
        """Write the text, read or not."""
        try:
            return super().write(text)
        except OSError as gone:
            self._go_nowhere(gone)
            return len(text)

    def flush(self) -> None:
        """Hand over what was written, if anybody reads it."""
        try:
            super().flush()
        except OSError as gone:
            self._go_nowhere(gone)

    def _go_nowhere(self, gone: OSError) -> None:
        # A pipe without a reader, or a terminal that was hung up.
        if gone.errno not in (errno.EPIPE, errno.EIO):
            raise gone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def outlive_readers() -> None:
    """From now on a pipe whose reader has gone, and a stream that was closed before, take what is written.

    click would end a verb with 1 in the first case, which says that a person is needed, and the second one is a stream of None.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - for as long as the process lives
    sys.stdout = _outliving(sys.stdout)
    sys.stderr = _outliving(sys.stderr)


def _outliving(stream: TextIO | None) -> TextIO:
    if stream is None:
        return Path(os.devnull).open("w")
    # Exactly: what somebody has put in its place, who runs this in their own process, is theirs.
    if type(stream) is io.TextIOWrapper:
        return _Outliving(stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
    return stream
