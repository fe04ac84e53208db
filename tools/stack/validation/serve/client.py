# SPDX-License-Identifier: Apache-2.0
"""Requests to an OpenAI-compatible server; whatever is wrong with an answer is said with the request and the answer."""

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
"""Seconds for an answer: the first one that wants log-probabilities takes a while on a CPU."""
_LEAST = 0.01
"""Seconds to wait where none are left: none at all would mean for ever, or be refused."""
SHOWN = 1500
"""Characters of a request or an answer that a failure shows."""

Json = dict[str, Any]


class Wrong(Exception):
    """An answer is not what it has to be."""

    def __init__(self, problem: str, *, request: object = None, answer: object = None, expected: object = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.told = {"request": request, "answer": answer, "expected": expected}

    def __str__(self) -> str:
        told = (f"{name}: {_shown(value)}" for name, value in self.told.items() if value is not None)
        return "\n".join((self.problem, *told))


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request with its answer: the JSON of a whole one, or of each event of a stream and the second at which it came."""

    path: str
    body: Mapping[str, Any]
    events: Sequence[Json]
    times: Sequence[float] = ()

    @property
    def answer(self) -> Json:
        """The answer of a request that is answered at once."""
        return self.events[0]

    def wrong(self, problem: str, expected: object = None) -> Wrong:
        """What to raise of this exchange."""
        answer = self.events[0] if len(self.events) == 1 else list(self.events)
        return Wrong(
            problem, request=f"POST {self.path} {json.dumps(self.body, ensure_ascii=False)}", answer=answer, expected=expected
        )

    def equal(self, what: str, found: object, expected: object) -> None:
        """Compare a part of the answer.

        Raises:
            Wrong: it is another.

        """
        if found != expected:
            raise self.wrong(f"{what} is {_shown(found)}", expected)

    def part(self, *keys: str | int) -> Any:
        """A part of the answer, by keys and positions.

        Raises:
            Wrong: there is no such part.

        """
        found: Any = self.answer
        for key in keys:
            try:
                found = found[key]
            except (KeyError, IndexError, TypeError) as missing:
                raise self.wrong(f"the answer has no {'.'.join(map(str, keys))}") from missing
        return found


@dataclass(frozen=True, slots=True)
class Talk:
    """Where a server is, and what it calls its model; seconds that an answer may take, and the key that it wants to see.

    `until` is when all answers have to be there, by time.monotonic().
    """

    url: str
    model: str
    longest: float = LONGEST
    key: str | None = field(default=None, repr=False)
    until: float = math.inf
    _last: threading.local = field(default_factory=threading.local, compare=False, repr=False)
    """What was exchanged last, by each thread."""

    @property
    def patience(self) -> float:
        """Seconds that the next answer may take."""
        return max(min(self.longest, self.until - time.monotonic()), _LEAST)

    def get(self, path: str) -> Any:
        """The JSON of a page.

        Raises:
            Wrong: there is none.

        """
        self._last.exchange = None
        try:
            with bounded_http.asked(self.url + path, None, self.patience, self.key) as answer:
                data = bounded_http.whole(answer, self.patience)
                if answer.status_code != 200:
                    raise Wrong(f"it answers {answer.status_code}", request=f"GET {path}", answer=_text(data))
                return bounded_http.parsed(data)
        except bounded_http.BROKEN as failed:
            raise Wrong(f"no answer comes back: {bounded_http.why(failed)}", request=f"GET {path}") from failed
        except ValueError as failed:
            raise Wrong(f"no JSON comes back: {failed}", request=f"GET {path}") from failed

    def ask(self, path: str, /, **body: Any) -> Exchange:
        """Ask, and take the answer whole.

        Raises:
            Wrong: the answer is an error, or no JSON object.

        """
        asked = {"model": self.model, **body}
        nothing = Exchange(path, asked, [])
        try:
            with self._posted(path, asked) as answer:
                value = bounded_http.parsed(bounded_http.whole(answer, self.patience))
        except bounded_http.BROKEN as failed:
            raise nothing.wrong(f"no answer comes back: {bounded_http.why(failed)}") from failed
        except ValueError as failed:
            raise nothing.wrong(f"the answer is not JSON: {failed}") from failed
        return self._exchanged(path, asked, [value])

    def stream(self, path: str, /, **body: Any) -> Exchange:
        """Ask, and take the answer as a stream of events.

        Raises:
            Wrong: the answer is an error, or no stream of JSON objects that comes to its end.

        """
        asked = {"model": self.model, "stream": True, **body}
        events: list[Json] = []
        times: list[float] = []
        try:
            with self._posted(path, asked) as answer:
                kind = answer.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    raise Exchange(path, asked, []).wrong(f"the answer is {kind or 'of no type'}, not a stream")
                for event in _events(answer, self.patience):
                    events.append(event)
                    times.append(time.monotonic())
        except (*bounded_http.BROKEN, ValueError) as failed:
            why = str(failed) if isinstance(failed, ValueError) else bounded_http.why(failed)
            raise Exchange(path, asked, events).wrong(f"the stream breaks off: {why}") from failed
        return self._exchanged(path, asked, events, times)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take answers apart here: where that fails, the last of them is not of the form that it has to be.

        Raises:
            Wrong: instead of what is raised where a part is missing, or of another type.

        """
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as odd:
            problem = f"the answer is of another form than it has to be ({type(odd).__name__}: {odd})"
            last: Exchange | None = getattr(self._last, "exchange", None)
            raise last.wrong(problem) if last is not None else Wrong(problem) from odd

    def _exchanged(self, path: str, asked: Json, events: Sequence[Json], times: Sequence[float] = ()) -> Exchange:
        exchange = Exchange(path, asked, events, times)
        self._last.exchange = exchange
        return exchange

    @contextmanager
    def _posted(self, path: str, asked: Json) -> Iterator[requests.Response]:
        with bounded_http.asked(self.url + path, asked, self.patience, self.key) as answer:
            if answer.status_code != 200:
                said = _text(bounded_http.whole(answer, self.patience))
                raise Exchange(path, asked, [{"error": said}]).wrong(f"it answers {answer.status_code}")
            yield answer


def _events(answer: requests.Response, longest: float) -> Iterator[Json]:
    """The data of each event. A chat stream ends with [DONE]; one of responses with response.completed or its like."""
    ended = False
    for line in bounded_http.lines(answer, longest):
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            ended = True
            continue
        event = bounded_http.parsed(data)
        if not isinstance(event, dict):
            raise ValueError(f"an event is no object: {event!r:.60}")
        ended = ended or str(event.get("type")) in ("response.completed", "response.incomplete", "response.failed")
        yield event
    if not ended:
        raise ValueError("it has no end")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shortened(text, SHOWN)
