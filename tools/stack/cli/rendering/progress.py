# SPDX-License-Identifier: Apache-2.0
"""Progress of long work as one line on a terminal's stderr, erased before anything else is written.

rich's live display is not used here: while it runs, it sends what is printed to stdout to stderr, also if stdout is a file.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from stack.base.progress import Progress, silent
from stack.cli import output
from stack.cli.rendering import log_file, settings, terminal, text

_EVERY = 0.1
_PATIENCE = 0.4
"""Seconds before the line appears: short work shows none."""
_BAR = 12
_NARROWEST = 20
_SIGNS = ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\")
_BLOCKS = (("━", "╌"), ("#", "-"))


class StatusLine:
    """A callback for progress that draws the current step, its share and its time, as wide as the terminal."""

    def __init__(self, stream: TextIO, *, patience: float = _PATIENCE) -> None:
        self._descriptor = stream.fileno()
        self._unicode = terminal.has_unicode(stream)
        self._encoding = stream.encoding or "ascii"
        self._patience = patience
        self._lock = threading.RLock()
        self._step, self._done = "", 0
        self._total: int | None = None
        self._since = self._began = time.monotonic()
        self._drawn = False
        self._glued = False
        self._held = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __call__(self, step: str, done: int = 0, total: int | None = None, /) -> None:
        """Report progress of a step."""
        with self._lock:
            if step != self._step:
                self._step, self._since = step, time.monotonic()
            self._done, self._total = done, total

    def close(self) -> None:
        """Erase the line for good."""
        self._stopped.set()
        self._thread.join()
        self.erase()

    def erase(self, written: str = "\n") -> None:
        """Erase the line before something else is written; if that does not end its line, nothing is drawn behind it."""
        with self._lock:
            if self._drawn:
                self._put("\r\x1b[K")
                self._drawn = False
            if written:
                self._glued = not written.endswith("\n")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Draw nothing while a question or an editor uses the terminal."""
        with self._lock:
            self._held += 1
        self.erase()
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY):
            with self._lock:
                now = time.monotonic()
                if self._step and not self._held and not self._glued and now - self._began >= self._patience:
                    self._drawn = True
                    self._put(f"\r\x1b[K{self._line(now)}")

    def _line(self, now: float) -> str:
        """Return the line: a moving sign, the step, a bar, the share and the time, as far as there is room."""
        try:
            # The last column stays free, since some terminals wrap there.
            columns = max(os.get_terminal_size(self._descriptor).columns - 1, _NARROWEST)
        except OSError:
            columns = _NARROWEST
        signs = _SIGNS[0 if self._unicode else 1]
        seconds = int(now - self._since)
        end = f" {seconds // 60}:{seconds % 60:02}"
        if self._total:
            share = min(max(self._done / self._total, 0.0), 1.0)
            full, empty = _BLOCKS[0 if self._unicode else 1]
            bar = full * round(share * _BAR) + empty * (_BAR - round(share * _BAR))
            end = f" {share:4.0%}{end}"
            if columns >= len(self._step) + _BAR + len(end) + 3:
                end = f" {bar}{end}"
        sign = signs[int(now / _EVERY) % len(signs)]
        return f"{sign} {text.shortened(text.one_line(self._step), max(columns - len(end) - 2, 4))}{end}"

    def _put(self, shown: str) -> None:
        # Not through the stream: its other writers erase this line first.
        with contextlib.suppress(OSError):
            os.write(self._descriptor, shown.encode(self._encoding, "replace"))


_shown: list[StatusLine] = []
"""The line on the terminal, if there is one."""


@contextlib.contextmanager
def progress(stream: TextIO, fallback: Callable[[], contextlib.AbstractContextManager[Progress]]) -> Iterator[Progress]:
    """Show progress on a terminal; elsewhere, and on a terminal that cannot erase a line, use `fallback`. `-q` shows nothing."""
    with contextlib.ExitStack() as opened:
        if settings.current().quiet:
            tell: Progress = silent
        elif terminal.is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb", "unknown"):
            line = opened.enter_context(contextlib.closing(StatusLine(stream)))
            opened.enter_context(_registered(line))
            tell = line
        else:
            tell = opened.enter_context(fallback())
        yield opened.enter_context(log_file.steps(settings.current().log, tell))


@contextlib.contextmanager
def _registered(line: StatusLine) -> Iterator[None]:
    """Let everything that is written to the standard streams erase the line first."""
    _shown.append(line)
    output.before_writing.append(line.erase)
    try:
        yield
    finally:
        output.before_writing.remove(line.erase)
        _shown.remove(line)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Remove the line while a question or an editor uses the terminal."""
    with contextlib.ExitStack() as held:
        for line in _shown:
            held.enter_context(line.held())
        yield
