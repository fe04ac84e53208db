# SPDX-License-Identifier: Apache-2.0
"""Wait for the first answer of a server that is starting, and read in its log how far it is and what it runs."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Protocol

from stack.base import bounded_http
from stack.base.progress import Progress
from stack.deploy import vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import Mismatch, Reading
from stack.validation.serve import server
from stack.validation.serve.server import NotServing

_MOST = 2**26
"""Bytes of a starting server's log that are read; real logs have some hundred thousand, even when kernels are compiled."""
_PAUSE = 0.25
_BETWEEN = 0.5
"""Seconds between two health checks."""
_LATE = 5.0
"""Seconds to wait for the last output of a server that has ended."""


class Guard(Protocol):
    """Kills a server before its machine has no memory left; `reason` says why it did, None as long as it has not."""

    @property
    def reason(self) -> str | None:
        """Why the server was killed."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """A server that is starting: its recipe, its address (None without an API) and key; seconds to wait for it.

    `ended`: returns the exit code of a server that has ended, and None as long as it runs. `guard`: may have killed it for its memory.
    """

    recipe: Recipe
    url: str | None
    key: str | None
    longest: float
    ended: Callable[[], int | None]
    guard: Guard | None = None


def mismatches(recipe: Recipe, reading: Reading, text: str) -> tuple[Mismatch, ...]:
    """List how a server differs from its recipe, as its whole log says."""
    missing = [line for line in recipe.log if line not in text]
    found = vllm_log.mismatches(reading, recipe.backends)
    if reading.headless:  # only the log of the node with the API has all facts
        found = tuple(mismatch for mismatch in found if mismatch.found != vllm_log.UNSAID)
        missing = []
    return (*found, *(Mismatch("log", line, vllm_log.UNSAID) for line in missing))


class Output:
    """A server's output, read by a thread: a server whose pipe is full stops."""

    def __init__(self, stream: IO[bytes], out: Callable[[bytes], None]) -> None:
        self._stream, self._out = stream, out
        self._held = bytearray()
        self._keeps = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Return all of it up to `forget`."""
        with self._lock:
            return self._held.decode("utf-8", "replace")

    def since(self, place: int) -> bytes:
        """Return the bytes after a position."""
        with self._lock:
            return bytes(self._held[place:])

    def finished(self) -> str:
        """Wait for the end of the server, and return all of its output."""
        self._thread.join(timeout=_LATE)
        return self.text()

    def close(self) -> None:
        """Stop reading the output of a server that has ended.

        If a process that left the server's group still holds the pipe open, the thread keeps it: closing it would wait for that process.
        """
        self._thread.join(timeout=_LATE)
        if not self._thread.is_alive():
            self._stream.close()

    def forget(self) -> None:
        """Keep no further output: a server may run for months."""
        self._keeps = False

    def _take(self) -> None:
        while piece := self._stream.read1(2**16):  # type: ignore[attr-defined]  # a pipe's reader has it
            with self._lock:
                self._held += piece if self._keeps and len(self._held) < _MOST else b""
            with contextlib.suppress(OSError, ValueError):  # if the reader has gone or the disk is full, the server goes on
                self._out(piece)


class Watch:
    """A server that is starting."""

    def __init__(self, start: Awaited, output: Output, tell: Progress, began: float) -> None:
        self._start, self._output, self._tell = start, output, tell
        self._began, self._read, self._next, self._stage = began, 0, 0.0, "starting the server"
        self._far: tuple[int, int | None] = 0, None

    def wait(self) -> str | None:
        """Wait for its first answer; return its name of the model, None without an API."""
        while not self._is_up():
            self._look()
            time.sleep(_PAUSE)
        return self._first(self._start.url) if self._start.url is not None else None

    def _is_up(self) -> bool:
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + _BETWEEN
        return server.healthy(self._start.url) if self._start.url is not None else self._names_all()

    def _names_all(self) -> bool:
        """Return whether the log of a node without an API names all expected backends; it never says that it is ready."""
        reading = vllm_log.read(self._output.text())
        return reading.headless and all(map(reading.named, vllm_log.wanted(self._start.recipe.backends)))

    def _look(self) -> None:
        """Check that it runs and is not late, and report its progress."""
        if (code := self._start.ended()) is not None:
            how = f"the server ended with {code} after {self._waited():.0f} s"
            raise self._failed(how, self._output.finished())
        if self._left() <= 0:
            raise NotServing(f"the server is not ready after {self._start.longest:.0f} s", self._output.text())
        fresh = self._output.since(self._read)
        whole = fresh[: max(fresh.rfind(b"\n"), fresh.rfind(b"\r")) + 1]
        self._read += len(whole)
        for line in vllm_log.lines(whole.decode("utf-8", "replace")):
            begun = vllm_log.stage(line) or self._stage
            if begun != self._stage:
                self._stage, self._far = begun, (0, None)
            self._far = vllm_log.progress(line) or self._far
        self._tell(self._stage, *self._far)

    def _first(self, url: str) -> str:
        """Send a first request, since a server with a dead engine still reports that it is healthy."""
        self._tell("waiting for the first answer", 0, None)
        model = self._model(url)
        content = {"model": model, "messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 8, "temperature": 0}
        tokens = _part(self._answer(f"{url}/v1/chat/completions", content), "usage", "completion_tokens")
        if not isinstance(tokens, int) or tokens < 1:
            raise NotServing("the server's answer has no token", self._output.text())
        return model

    def _model(self, url: str) -> str:
        name = _part(self._answer(f"{url}/v1/models", None), "data", 0, "id")
        if not isinstance(name, str):
            raise NotServing("the server lists no model", self._output.text())
        return name

    def _answer(self, address: str, content: Mapping[str, Any] | None) -> Any:
        try:
            with bounded_http.asked(address, content, max(self._left(), 1.0), self._start.key) as answer:
                data, status = bounded_http.whole(answer), answer.status_code
            if status == 200:
                return bounded_http.parsed(data)
            how = f"the server answers its first request with {status} ({' '.join(data[:300].decode('utf-8', 'replace').split())})"
        except (*bounded_http.BROKEN, ValueError) as failed:
            how = f"the server does not answer its first request ({type(failed).__name__})"
        raise self._failed(how, self._output.text())

    def _failed(self, how: str, log: str) -> NotServing:
        """Return the error of a server that ended; if the guard of the memory ended it, that is why."""
        reason = self._start.guard.reason if self._start.guard is not None else None
        return NotServing(how, log) if reason is None else NotServing(reason, log, explained=True)

    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _left(self) -> float:
        return self._start.longest - self._waited()


def _part(value: Any, *keys: str | int) -> Any:
    """Return a part of an answer; None if it is missing."""
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
