# SPDX-License-Identifier: Apache-2.0
"""A recipe's server: started, watched until it has answered once, held against what the recipe expects, and always ended."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from stack.base import bounded_http
from stack.deploy import vllm_log
from stack.deploy.recipes import Recipe
from stack.deploy.vllm_log import Mismatch, Reading
from stack.validation.python_env import Process
from stack.validation.serve import server
from stack.validation.serve.server import NotServing

_MOST = 2**26
"""Bytes of the log of a server that is starting which are looked at: real ones have some hundred thousand, whatever compiles."""
_PAUSE = 0.25
_BETWEEN = 0.5
"""Seconds between two questions whether it is healthy."""
_LATE = 5.0
"""Seconds for the last words of a server that has ended."""
Tell = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Start:
    """What is started, in which folder; where it can be asked then (None: it has no API), with which key; seconds to wait for it."""

    recipe: Recipe
    process: Process
    folder: Path
    url: str | None
    key: str | None
    longest: float


@dataclass(frozen=True, slots=True)
class Up:
    """A server that has answered: what its log says, and what of it is not as the recipe expects; seconds that it took.

    `model`: what clients call it; None where it has no API. `wait`: until it ends, whatever of; its exit code.
    """

    reading: Reading
    mismatches: tuple[Mismatch, ...]
    url: str | None
    model: str | None
    seconds: float
    wait: Callable[[], int]


@contextmanager
def started(start: Start, out: Callable[[bytes], None], tell: Tell) -> Iterator[Up]:
    """A server that has answered, for as long as the block runs; it is gone afterwards, also when this process is killed.

    Args:
        start: what to start.
        out: gets all that the server says, as it comes.
        tell: gets what it is doing: the step, how far it is, of how much.

    Raises:
        NotServing: it ended, is not ready in time, or gives no answer.

    """
    with (
        contextlib.ExitStack() as afterwards,
        server.kept(start.process, subprocess.PIPE, start.folder) as process,
    ):
        assert process.stdout is not None
        said = _Said(process.stdout, out)
        afterwards.callback(said.close)
        began = time.monotonic()
        watch = _Watch(start, process, said, tell, began)
        model = watch.wait()
        text = said.text()
        told = vllm_log.read(text)
        said.forget()
        yield Up(told, _mismatches(start.recipe, told, text), start.url, model, time.monotonic() - began, process.wait)


def _mismatches(recipe: Recipe, told: Reading, text: str) -> tuple[Mismatch, ...]:
    missing = [line for line in recipe.log if line not in text]
    found = vllm_log.mismatches(told, recipe.backends)
    if told.headless:  # only the node that has the API says all
        found = tuple(one for one in found if one.found != vllm_log.UNSAID)
        missing = []
    return (*found, *(Mismatch("log", line, vllm_log.UNSAID) for line in missing))


class _Said:
    """What a server says, taken in by a thread of its own: a server whose pipe is full stands still."""

    def __init__(self, stream: IO[bytes], out: Callable[[bytes], None]) -> None:
        self._stream, self._out = stream, out
        self._held = bytearray()
        self._keeps = True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """All of it, until `forget`."""
        with self._lock:
            return self._held.decode("utf-8", "replace")

    def since(self, place: int) -> bytes:
        """What came after so many bytes."""
        with self._lock:
            return bytes(self._held[place:])

    def finished(self) -> str:
        """All of it, once the server has ended."""
        self._thread.join(timeout=_LATE)
        return self.text()

    def close(self) -> None:
        """Take no more of a server that has ended."""
        self._thread.join(timeout=_LATE)
        self._stream.close()

    def forget(self) -> None:
        """Keep nothing of what is said from now on: a server says something for months."""
        self._keeps = False

    def _take(self) -> None:
        while piece := self._stream.read1(2**16):  # type: ignore[attr-defined]  # a pipe's reader has it
            with self._lock:
                self._held += piece if self._keeps and len(self._held) < _MOST else b""
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more, or the disk is full: it goes on serving
                self._out(piece)


class _Watch:
    """A server that is starting."""

    def __init__(self, start: Start, process: "subprocess.Popen[bytes]", said: _Said, tell: Tell, began: float) -> None:
        self._start, self._process, self._said, self._tell = start, process, said, tell
        self._began, self._read, self._next, self._stage = began, 0, 0.0, "starting the server"
        self._far: tuple[int, int | None] = 0, None

    def wait(self) -> str | None:
        """Wait until it has answered a question; what it calls its model, None where it has no API."""
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
        """Whether the log of a node without an API names what it runs, as far as the recipe does: it never says that it is ready."""
        told = vllm_log.read(self._said.text())
        return told.headless and all(map(told.named, vllm_log.wanted(self._start.recipe.backends)))

    def _look(self) -> None:
        """See that it runs and is not late, and tell what it does."""
        if self._process.poll() is not None:
            raise NotServing(
                f"the server ended with {self._process.returncode} after {self._waited():.0f} s", self._said.finished()
            )
        if self._left() <= 0:
            raise NotServing(f"the server is not ready after {self._start.longest:.0f} s", self._said.text())
        fresh = self._said.since(self._read)
        whole = fresh[: max(fresh.rfind(b"\n"), fresh.rfind(b"\r")) + 1]
        self._read += len(whole)
        for line in vllm_log.lines(whole.decode("utf-8", "replace")):
            begun = vllm_log.stage(line) or self._stage
            if begun != self._stage:
                self._stage, self._far = begun, (0, None)
            self._far = vllm_log.progress(line) or self._far
        self._tell(self._stage, *self._far)

    def _first(self, url: str) -> str:
        """Ask something: a server whose engine is dead is healthy all the same."""
        self._tell("waiting for the first answer", 0, None)
        model = self._model(url)
        content = {"model": model, "messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 8, "temperature": 0}
        tokens = _part(self._answer(f"{url}/v1/chat/completions", content), "usage", "completion_tokens")
        if not isinstance(tokens, int) or tokens < 1:
            raise NotServing("the server answers, but with no token", self._said.text())
        return model

    def _model(self, url: str) -> str:
        name = _part(self._answer(f"{url}/v1/models", None), "data", 0, "id")
        if not isinstance(name, str):
            raise NotServing("the server lists no model", self._said.text())
        return name

    def _answer(self, address: str, content: Mapping[str, Any] | None) -> Any:
        try:
            with bounded_http.asked(address, content, max(self._left(), 1.0), self._start.key) as answer:
                data, status = bounded_http.whole(answer, max(self._left(), 1.0)), answer.status_code
            if status == 200:
                return bounded_http.parsed(data)
            how = f"the server answers its first question with {status} ({' '.join(data[:300].decode('utf-8', 'replace').split())})"
        except (*bounded_http.BROKEN, ValueError) as failed:
            how = f"the server does not answer its first question ({type(failed).__name__})"
        raise NotServing(how, self._said.text())

    def _waited(self) -> float:
        return time.monotonic() - self._began

    def _left(self) -> float:
        return self._start.longest - self._waited()


def _part(value: Any, *keys: str | int) -> Any:
    """A part of an answer; None where there is none."""
    for key in keys:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
