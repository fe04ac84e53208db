# SPDX-License-Identifier: Apache-2.0
"""Read a stream of events from a server that is not trusted: bytes, lines and events are bounded."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests

from stack.base import bounded_http
from stack.doctor.finding import Found
from stack.doctor.server.shown import shown

Json = dict[str, Any]
LARGEST = 8 * 2**20
"""Bytes of the largest answer that is read, decompressed."""
_LINE = 2**20
"""Bytes of the longest line of a stream."""
_LINES = 100_000
"""Lines of the longest stream: for each token a few, and comments that keep the connection alive."""
_SPARE = 64
"""Events that a stream may have beside one for each token."""
_ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a stream, with the second at which each came, and how it ended.

    `done`: its final event came; `error`: the message of an event that reports an error; `broken`: why reading stopped before the end;
    `late`: it stopped for want of time; `overrun`: it had far more events than tokens were asked for.
    """

    events: tuple[Json, ...]
    times: tuple[float, ...]
    done: bool
    error: str | None
    broken: str
    late: Found | None
    overrun: bool
    began: float


class Reader:
    """Reads the events of a stream that may have `tokens` tokens."""

    def __init__(self, tokens: int) -> None:
        self._most = tokens + _SPARE
        self._events: list[Json] = []
        self._times: list[float] = []
        self._done = self._overrun = False
        self._error: str | None = None
        self.broken = ""

    def read(self, answer: requests.Response) -> None:
        """Read until the stream ends, or something is wrong with it."""
        for line in _lines(answer):
            if line is None:
                self.broken = f"a line has more than {_LINE // 2**20} MiB"
            elif line.startswith(b"data:"):
                self._event(line.removeprefix(b"data:").strip())
            if self.broken or self._overrun:
                return

    def stream(self, late: Found | None, began: float) -> Stream:
        """Return what was read."""
        events, times = tuple(self._events), tuple(self._times)
        return Stream(events, times, self._done, self._error, self.broken, late, self._overrun, began)

    def _event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            event = bounded_http.parsed(data)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self.broken = f"an event is not a JSON object: {shown(data.decode('utf-8', 'replace'))}"
            return
        if error := _error(event):
            self._error = error
        self._done = self._done or event.get("type") in _ENDS
        self._events.append(event)
        self._times.append(time.monotonic())
        self._overrun = len(self._events) > self._most


def _error(event: Json) -> str | None:
    """Return the message of an event that reports an error."""
    response = event.get("response")
    error = event.get("error") or (response.get("error") if isinstance(response, dict) else None)
    if not error and event.get("type") not in ("error", "response.failed") and event.get("object") != "error":
        return None
    message = error.get("message") if isinstance(error, dict) else error
    return shown(message or event.get("message") or event)


def _lines(answer: requests.Response) -> Iterator[bytes | None]:
    """Yield the lines of a stream; None in place of one that is too long."""
    begun, count = b"", 0
    for piece in pieces(answer):
        *ended, rest = piece.split(b"\n")
        count += len(ended)
        if count > _LINES:
            raise bounded_http.EndlessError(f"more than {_LINES:,} lines came")
        for line in ended:
            yield (begun + line).rstrip(b"\r")
            begun = b""
        begun += rest
        if len(begun) > _LINE:
            yield None
            return
    if begun:
        yield begun.rstrip(b"\r")


def pieces(answer: requests.Response) -> Iterator[bytes]:
    """Yield the body of an answer in pieces.

    Raises:
        one of BROKEN: it breaks off, takes too long, or has more than LARGEST bytes.

    """
    size = 0
    for piece in bounded_http.pieces(answer):
        size += len(piece)
        if size > LARGEST:
            raise bounded_http.EndlessError(f"more than {LARGEST // 2**20} MiB came")
        yield piece
