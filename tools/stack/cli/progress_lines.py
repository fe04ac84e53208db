# SPDX-License-Identifier: Apache-2.0
"""Say in a pipe which long step runs, in one line on stderr: somebody who waits for minutes wants to know for what."""

import threading

from stack.cli.sentences import tell

_LARGE = 4 << 20
"""Bytes of a download that is worth a line."""
_PATIENCE = 3.0
"""Seconds after which a step without a known size is worth a line."""
_LONG = ("downloading ", "fetching ", "importing ", "reading ", "waiting ")
"""How the steps begin that may take minutes, and are few."""


class ProgressLines:
    """A callback for progress that prints a line for each large download and each step that takes long."""

    def __init__(self, *, patience: float | None = None) -> None:
        self._patience = _PATIENCE if patience is None else patience
        self._said: set[str] = set()
        self._step = ""
        self._timer: threading.Timer | None = None

    def __call__(self, step: str, done: int = 0, total: int | None = None, /) -> None:
        """Report progress of a step."""
        del done
        if step != self._step:
            self.close()
            self._step = step
            if step.startswith(_LONG):
                self._timer = threading.Timer(self._patience, self._say, (step,))
                self._timer.daemon = True
                self._timer.start()
        if step.startswith("downloading ") and total is not None and total >= _LARGE:
            self._say(f"{step} ({total / 1e6:.0f} MB)")

    def close(self) -> None:
        """Forget the current step."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self, line: str) -> None:
        step = line.partition(" (")[0]
        if step not in self._said:
            self._said.add(step)
            tell(line)
