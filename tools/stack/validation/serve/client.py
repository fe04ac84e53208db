# SPDX-License-Identifier: Apache-2.0
"""Client of an OpenAI-compatible server; each error shows the request and the answer."""

import json
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import requests

from stack.base import bounded_http
from stack.base.text import shortened

LONGEST = 300.0
"""Seconds for an answer; the first one with log-probabilities takes long on a CPU."""
_LEAST = 0.01
"""Least timeout in seconds: zero would mean no timeout, or be refused."""
SHOWN = 1500
"""Characters of a request or an answer that an error shows."""

Json = dict[str, Any]


class Wrong(Exception):
    """Raised when an answer is not as it must be."""

    def __init__(self, problem: str, *, request: object = None, answer: object = None, expected: object = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.details = {"request": request, "answer": answer, "expected": expected}

    def __str__(self) -> str:
        details = (f"{name}: {_shown(value)}" for name, value in self.details.items() if value is not None)
        return "\n".join((self.problem, *details))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its answer: a single JSON object, or the events of a stream with the second at which each came."""

    path: str
    body: Mapping[str, Any]
    events: Sequence[Json]
    times: Sequence[float] = ()

    @property
    def answer(self) -> Json:
        """The answer to a request without a stream."""
        return self.events[0]

    def wrong(self, problem: str, expected: object = None) -> Wrong:
        """Make the error for this exchange."""
        answer = self.events[0] if len(self.events) == 1 else list(self.events)
        return Wrong(
            problem, request=f"POST {self.path} {json.dumps(self.body, ensure_ascii=False)}", answer=answer, expected=expected
        )

    def equal(self, what: str, found: object, expected: object) -> None:
        """Compare a part of the answer with the expected value.

        Raises:
            Wrong: it differs.

        """
        if found != expected:
            raise self.wrong(f"{what} is {_shown(found)}", expected)

    def part(self, *keys: str | int) -> Any:
        """Return a part of the answer, by keys and positions.

        Raises:
            Wrong: the answer has no such part.

        """
        value: Any = self.answer
        for key in keys:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError) as missing:
                raise self.wrong(f"the answer has no {'.'.join(map(str, keys))}") from missing
        return value


@dataclass(frozen=True, slots=True)
class Talk:
    """A connection to a server: its address, its name of the model, the time limit for an answer in seconds, and the API key.

    `until` is the time, by time.monotonic(), when all answers must have come.
    """

    url: str
    model: str
    longest: float = LONGEST
    key: str | None = field(default=None, repr=False)
    until: float = math.inf
    _last: threading.local = field(default_factory=threading.local, compare=False, repr=False)
    """The last exchange of each thread."""

    @property
    def patience(self) -> float:
        """Seconds that the next answer may take."""
        return max(min(self.longest, self.until - time.monotonic()), _LEAST)

    def get(self, path: str) -> Any:
        """Get a page and parse its JSON.

        Raises:
            Wrong: the answer is an error, or not JSON.

        """
        self._last.exchange = None
        try:
            with bounded_http.asked(self.url + path, None, self.patience, self.key) as answer:
                data = bounded_http.whole(answer)
                if answer.status_code != 200:
                    raise Wrong(f"it answers {answer.status_code}", request=f"GET {path}", answer=_text(data))
                return bounded_http.parsed(data)
        except bounded_http.BROKEN as failed:
            raise Wrong(f"it does not answer: {bounded_http.why(failed)}", request=f"GET {path}") from failed
        except ValueError as failed:
            raise Wrong(f"the answer is not JSON: {failed}", request=f"GET {path}") from failed

    def ask(self, path: str, /, **body: Any) -> Exchange:
        """Send a request and read the whole answer.

        Raises:
            Wrong: the answer is an error, or not a JSON object.

        """
        request = {"model": self.model, **body}
        nothing = Exchange(path, request, [])
        try:
            with self._posted(path, request) as answer:
                value = bounded_http.parsed(bounded_http.whole(answer))
        except bounded_http.BROKEN as failed:
            raise nothing.wrong(f"it does not answer: {bounded_http.why(failed)}") from failed
        except ValueError as failed:
            raise nothing.wrong(f"the answer is not JSON: {failed}") from failed
        return self._exchanged(path, request, [value])

    def stream(self, path: str, /, **body: Any) -> Exchange:
        """Send a request and read the answer as a stream of events.

        Raises:
            Wrong: the answer is an error, or not a complete stream of JSON objects.

        """
        request = {"model": self.model, "stream": True, **body}
        events: list[Json] = []
        times: list[float] = []
        try:
            with self._posted(path, request) as answer:
                kind = answer.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    raise Exchange(path, request, []).wrong(f"the answer is {kind or 'of no type'}, not a stream")
                for event in _events(answer):
                    events.append(event)
                    times.append(time.monotonic())
        except (*bounded_http.BROKEN, ValueError) as failed:
            why = str(failed) if isinstance(failed, ValueError) else bounded_http.why(failed)
            raise Exchange(path, request, events).wrong(f"the stream breaks off: {why}") from failed
        return self._exchanged(path, request, events, times)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Report an error in the block as an answer of the wrong form, with the last exchange.

        Raises:
            Wrong: a part of an answer is missing, or has another type.

        """
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as odd:
            problem = f"the answer has a wrong form ({type(odd).__name__}: {odd})"
            last: Exchange | None = getattr(self._last, "exchange", None)
            raise last.wrong(problem) if last is not None else Wrong(problem) from odd

    def _exchanged(self, path: str, request: Json, events: Sequence[Json], times: Sequence[float] = ()) -> Exchange:
        exchange = Exchange(path, request, events, times)
        self._last.exchange = exchange
        return exchange

    @contextmanager
    def _posted(self, path: str, request: Json) -> Iterator[requests.Response]:
        with bounded_http.asked(self.url + path, request, self.patience, self.key) as answer:
            if answer.status_code != 200:
                error = _text(bounded_http.whole(answer))
                raise Exchange(path, request, [{"error": error}]).wrong(f"it answers {answer.status_code}")
            yield answer


def _events(answer: requests.Response) -> Iterator[Json]:
    """Yield the data of each event. A chat stream ends with [DONE], a stream of responses with an event such as response.completed."""
    ended = False
    for line in bounded_http.lines(answer):
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            ended = True
            continue
        event = bounded_http.parsed(data)
        if not isinstance(event, dict):
            raise ValueError(f"an event is not an object: {event!r:.60}")
        ended = ended or str(event.get("type")) in ("response.completed", "response.incomplete", "response.failed")
        yield event
    if not ended:
        raise ValueError("its final event is missing")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text, SHOWN)
