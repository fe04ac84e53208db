# SPDX-License-Identifier: Apache-2.0
"""Standard streams that survive their reader: a verb's work and exit code do not depend on anybody reading its output."""

import errno
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

before_writing: "list[Callable[[str], object]]" = []
"""These are called before a text is written. The line with the progress, for example, has to go first."""
_ASCII = str.maketrans({"…": "...", "→": "->", "─": "-", "✓": "ok", "·": "-"})


class _Outliving(io.TextIOWrapper):
    """A stream that discards everything once its reader has gone, and spells characters that its encoding lacks."""

    def write(self, text: str, /) -> int:
        """Write the text; discard it if the reader has gone."""
        for tell in tuple(before_writing):
            tell(text)
        if not self.encoding.lower().startswith("utf"):
            text = text.translate(_ASCII).encode(self.encoding, "backslashreplace").decode(self.encoding)
        try:
            return super().write(text)
        except OSError as gone:
            self._go_nowhere(gone)
            return len(text)

    def flush(self) -> None:
        """Flush the buffer; discard it if the reader has gone."""
        try:
            super().flush()
        except OSError as gone:
            self._go_nowhere(gone)

    def _go_nowhere(self, gone: OSError) -> None:
        # EPIPE: a pipe without a reader. EIO: a terminal that was closed.
        if gone.errno not in (errno.EPIPE, errno.EIO):
            raise gone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def outlive_readers() -> None:
    """Make the standard streams survive a closed pipe, and replace closed streams.

    On a closed pipe click would exit with 1, which means that a person is needed. Python sets a stream that was closed before the
    start to None.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - for as long as the process lives
    sys.stdout = _outliving(sys.stdout)
    sys.stderr = _outliving(sys.stderr)


def _outliving(stream: TextIO | None) -> TextIO:
    if stream is None:
        return Path(os.devnull).open("w")
    # Only the exact type: a caller in the same process may have replaced the stream.
    if type(stream) is io.TextIOWrapper:
        return _Outliving(stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
    return stream
