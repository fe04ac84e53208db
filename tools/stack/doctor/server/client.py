# SPDX-License-Identifier: Apache-2.0
"""HTTP client for a server that is not trusted: each answer is bounded in bytes and seconds, and redirects are not followed."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3

from stack.base import bounded_http
from stack.doctor.finding import Found, unknown, wrong
from stack.doctor.server.events import Reader, Stream, pieces
from stack.doctor.server.shown import SEE_LOG, shown

_NEARLY = 0.05
"""Seconds before the end of all time that count as the end."""
_LEAST = 0.01
"""Least timeout in seconds: zero would mean none."""
_TEMPLATE_FIX = "serve a model that was taught to chat, or give it a template: --chat-template FILE"
_PROXY = f"a proxy answers in place of the server, which is down or too slow for it: ask the server itself, and {SEE_LOG}"
_FIXES = {
    404: "it has no such route, or no such model: name one that /v1/models lists with --model",
    413: "most often a proxy's limit (nginx: client_max_body_size)",
    502: _PROXY,
    504: _PROXY,
}
_LATE = (bounded_http.LateError, requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)


class NoAnswer(Exception):
    """Raised when a question has no answer that could be judged.

    `found`: what to report; `status`: the HTTP status, None if there was no answer at all; `spent`: whether the server may have generated
    tokens all the same.
    """

    def __init__(self, found: Found, *, status: int | None = None, spent: bool = False) -> None:
        super().__init__(found.what)
        self.found, self.status, self.spent = found, status, spent

    @property
    def may_be_dead(self) -> bool:
        """Whether the server may have died of the question."""
        return self.status is None or self.status >= 500


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: status, type, body, the host that it redirects to, and the seconds that it took."""

    status: int
    kind: str
    data: bytes
    host: str
    seconds: float

    def json(self) -> Any:
        """Parse the body.

        Raises:
            NoAnswer: it is not JSON.

        """
        try:
            return bounded_http.parsed(self.data)
        except ValueError as bad:
            raise NoAnswer(self._odd(str(bad)), status=self.status, spent=True) from bad

    def _odd(self, why: str) -> Found:
        text = self.data.decode("utf-8", "replace")
        if "html" in self.kind or text.lstrip()[:14].lower().startswith(("<!doctype html", "<html")):
            what = f"the answer is not JSON but a web page: {shown(text)}"
            return wrong(what, "most often the address of another service, or the login page of a proxy: correct --url")
        return wrong(f"the answer is not JSON ({shown(why, 60)}): {shown(text)}", f"correct --url, or {SEE_LOG}")

    def message(self) -> str:
        """Return the server's own words in an answer that reports an error."""
        text = self.data.decode("utf-8", "replace")
        try:
            value: Any = bounded_http.parsed(self.data)
        except ValueError:
            return shown(text)
        for key in ("error", "message", "detail"):
            value = value.get(key, value) if isinstance(value, dict) else value
        return shown(value if isinstance(value, str) else text)

    def refusal(self) -> NoAnswer:
        """Describe an answer that is an error."""
        return NoAnswer(self._refused(), status=self.status)

    def _refused(self) -> Found:
        what = f"it answers {self.status}"
        if self.status in (401, 403):
            return unknown(f"{what}: it wants a key", "set VLLM_API_KEY to it")
        if 300 <= self.status < 400:
            fix = "if you trust that server, pass its address with --url; the key was not sent there"
            return wrong(f"{what}: it redirects to {shown(self.host) or 'nowhere'}", fix)
        if self.status == 429:
            return unknown(f"{what}: it is too busy, or it limits requests ({self.message()})", "try again later")
        said = self.message()
        fix = _TEMPLATE_FIX if "chat template" in said.lower() else _FIXES.get(self.status, SEE_LOG)
        return wrong(f"{what} ({said})" if said else what, fix)


@dataclass(frozen=True, slots=True)
class Client:
    """A connection to a server. All answers together have to come until `until`, by time.monotonic(); `longest`: seconds from the start."""

    url: str
    longest: float
    key: str | None = field(default=None, repr=False)
    until: float = math.inf

    @property
    def left(self) -> float:
        """Seconds that are left for all questions."""
        return max(min(self.longest, self.until - time.monotonic()), _LEAST)

    def get(self, path: str, seconds: float = math.inf) -> Reply:
        """Get a page.

        Raises:
            NoAnswer: nothing came, or not all of it.

        """
        return self._reply(path, None, min(seconds, self.left))

    def post(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Send a request and read the whole answer, whatever its status.

        Raises:
            NoAnswer: nothing came, or not all of it.

        """
        return self._reply(path, body, self.left)

    def stream(self, path: str, body: Mapping[str, Any], tokens: int) -> Stream:
        """Send a request and read the answer as a stream of events, until it ends, breaks, or goes on for too long.

        Raises:
            NoAnswer: there is no answer, an error, or an answer that is no stream.

        """
        seconds, began = self.left, time.monotonic()
        with self._asked(path, body, seconds) as answer:
            kind = _kind(answer)
            if answer.status_code != 200:
                raise _read(answer, began).refusal()
            if kind != "text/event-stream":
                what = f"the answer to a request for a stream is {shown(kind) or 'of no type'}, not a stream"
                fix = "most often a proxy that collects streams: ask the server itself, without the proxy"
                raise NoAnswer(wrong(what, fix), status=200, spent=True)
            reader = Reader(tokens)
            late = None
            try:
                reader.read(answer)
            except bounded_http.BROKEN as failed:
                reader.broken = bounded_http.why(failed)
                late = self._late(seconds) if isinstance(failed, _LATE) else None
        return reader.stream(late, began)

    def _reply(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> Reply:
        began = time.monotonic()
        with self._asked(path, body, seconds) as answer:
            return _read(answer, began)

    @contextmanager
    def _asked(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> Iterator[requests.Response]:
        try:
            with bounded_http.asked(self.url + path, body, max(seconds, _LEAST), self.key) as answer:
                yield answer
        except (*bounded_http.BROKEN, ValueError) as failed:
            # requests raises ValueError for a redirect to something that is not an address.
            late = self._late(seconds) if isinstance(failed, _LATE) else None
            why = bounded_http.why(failed) if isinstance(failed, bounded_http.BROKEN) else str(failed)
            what = f"it does not answer: {shown(why)}"
            raise NoAnswer(late or wrong(what, SEE_LOG), spent=body is not None) from failed

    def _late(self, seconds: float) -> Found:
        """Report that no whole answer came in time: a fault, or only too little time that was left."""
        if seconds < self.longest / 2 and time.monotonic() >= self.until - _NEARLY:
            return unknown(
                f"no whole answer came in the {seconds:.0f} s that were left of --timeout", "pass a longer --timeout"
            )
        what = f"it does not answer: no whole answer came in {seconds:.0f} s"
        return wrong(what, f"{SEE_LOG}; where its first answer compiles kernels, ask again, or pass a longer --timeout")


def _read(answer: requests.Response, began: float) -> Reply:
    data = b"".join(pieces(answer))
    return Reply(answer.status_code, _kind(answer), data, _host(answer), time.monotonic() - began)


def _host(answer: requests.Response) -> str:
    """Return the host that an answer redirects to, without credentials; a redirect to another path is shown as that path."""
    if not 300 <= answer.status_code < 400:
        return ""
    try:
        parts = urlsplit(answer.headers.get("location", ""))
    except ValueError:
        return ""
    return parts.netloc.rpartition("@")[2] or parts.path


def _kind(answer: requests.Response) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()
