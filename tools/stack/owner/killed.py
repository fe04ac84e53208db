# SPDX-License-Identifier: Apache-2.0
"""Find out whether the image's memory guard has killed a server: the last line of the log says it, and the container runs on without it."""

from stack.base.errors import StackError
from stack.base.text import last_line, printable, shortened
from stack.owner.engine import Engine
from stack.serving.guarded import SIGN
from stack.serving.waiting import Output

_SHOWN = 400
_LINES = 5


def reason(engine: Engine, container: str) -> str | None:
    """Return why a container's server was killed for its memory; None if it was not, or the container is gone."""
    try:
        return _of(engine.output("logs", f"--tail={_LINES}", container).decode("utf-8", "replace"))
    except StackError:
        return None


def _of(log: str) -> str | None:
    line = last_line(log)
    return shortened(printable(line.removeprefix(SIGN)), _SHOWN) if line.startswith(SIGN) else None


class Followed:
    """A log that is followed from its beginning; only new bytes are looked at."""

    def __init__(self, output: Output) -> None:
        self._output, self._read = output, 0

    @property
    def reason(self) -> str | None:
        """Why the server was killed for its memory; None as long as it was not."""
        fresh = self._output.since(self._read)
        end = fresh.rfind(b"\n") + 1
        found = _of(fresh[:end].decode("utf-8", "replace")) if end else None
        if found is None:  # the next look finds it again otherwise
            self._read += end
        return found
