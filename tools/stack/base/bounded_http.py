# SPDX-License-Identifier: Apache-2.0
"""HTTP client for untrusted servers: limits on the time and the size of each answer.

requests and urllib3 limit each wait for bytes only, so a server that drips or never ends can hold a client for ever. Here a
request has one time budget up to the last byte of its answer, redirects included. Each received byte extends the budget by what
a slow line would need.
"""

import functools
import http.client
import io
import json
import math
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Retry

from stack.base.errors import StackError

LARGEST = 64 * 2**20
"""Bytes of the largest answer that is read into memory; the index page of a large project has ten million."""
SERVED = 256 * 2**20
"""Bytes of the largest answer of a server that `asked` asks."""
SECONDS = 120.0
SLOWEST = 20_000.0
"""Bytes per second of the slowest line that a download tolerates."""
_AT_ONCE = 2**16
_FRAMING = 2**18
"""Bytes of headers, interim answers, chunk sizes and trailers that an answer may have; real ones have a few thousand."""
_KEY = re.compile(r"[\x21-\x7e]+")
_PER_BYTE = 16
"""Bytes of chunk sizes that each byte of a body may add: a server may send it byte by byte."""

BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
"""The exceptions raised when an answer is missing or incomplete."""


class EndlessError(requests.RequestException):
    """Raised when an answer is too large."""


class _FramingError(urllib3.exceptions.HTTPError):
    """Raised inside urllib3, which passes it on and does not retry, when headers or trailers are too large."""


class LateError(EndlessError, requests.exceptions.ReadTimeout):
    """Raised when an answer takes too long."""


def is_here(address: str) -> bool:
    """Tell whether an address belongs to this machine, so that a server there runs on this machine's hardware."""
    host = urlsplit(address).hostname or ""
    try:
        ip = ip_address(host)
    except ValueError:
        return host in ("localhost", socket.gethostname())
    return ip.is_loopback or _own(ip)


def _own(ip: IPv4Address | IPv6Address) -> bool:
    """Tell whether an interface of this machine has the address: binding to any other address fails."""
    try:
        with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True


def why(failed: Exception) -> str:
    """Describe a failure in a few words; the library's own message takes several lines."""
    return str(failed) if isinstance(failed, EndlessError) else type(failed).__name__


def demand_key(key: str | None) -> None:
    """Refuse an API key or a token that a header cannot hold; the library's own error would contain it.

    Raises:
        StackError: It has a blank, a line break or another special character.

    """
    if key and not _KEY.fullmatch(key):
        raise StackError("the API key or token has a blank or a special character", "set it to one word of plain characters")


def session(*, seconds: float, rate: float = math.inf, largest: int = LARGEST, key: str | None = None) -> requests.Session:
    """Create a session whose answers are bounded (see `Bounded`), with `key` as bearer token; ~/.netrc never replaces it.

    Raises:
        StackError: A header cannot hold the key.

    """
    demand_key(key)
    made = Session()
    made.auth = _Bearer(key) if key else None
    for scheme in ("http://", "https://"):
        made.mount(scheme, Bounded(seconds=seconds, rate=rate, largest=largest))
    return made


@contextmanager
def asked(
    address: str, content: Mapping[str, Any] | None, seconds: float, key: str | None = None
) -> "Iterator[requests.Response]":
    """Send a GET, or a POST of `content` as JSON, and yield the response; read its body with `pieces`, `lines` or `whole`.

    `key` is the API key, if the server needs one; credentials from ~/.netrc or the address never replace it. The whole exchange,
    up to the last byte of the body, takes at most `seconds`, even if the server drips. Redirects are not followed: the answer
    would be another server's.

    Raises:
        one of BROKEN: No answer arrives.
        StackError: The key cannot be sent.

    """
    with session(seconds=seconds, largest=SERVED, key=key) as made:
        # No proxy stands between two processes of one machine.
        made.trust_env = not is_here(address)
        method = "GET" if content is None else "POST"
        with made.request(method, address, json=content, timeout=seconds, stream=True, allow_redirects=False) as answer:
            yield answer


class _Bearer(AuthBase):
    """Authentication with a bearer token. requests would replace a plain header by the entry of ~/.netrc."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def pieces(answer: requests.Response) -> Iterator[bytes]:
    """Yield the body of a streamed answer in pieces, within its session's bounds; the size counts after decompression.

    Raises:
        one of BROKEN: The body breaks off, takes too long, or is too large.

    """
    bounds, size = answer.connection, 0
    assert isinstance(bounds, Bounded)
    try:
        while piece := bytes(answer.raw.read1(_AT_ONCE, decode_content=True)):
            size += len(piece)
            if size > bounds.largest:
                raise EndlessError(f"more than {bounds.largest // 2**20} MiB came")
            yield piece
    except _FramingError as endless:
        raise EndlessError(str(endless)) from endless
    except urllib3.exceptions.ReadTimeoutError as late:
        raise LateError(f"it went on for more than {bounds.budget.seconds:.0f} s") from late


def whole(answer: requests.Response) -> bytes:
    """Return the whole body of a streamed answer; limits and errors as in `pieces`."""
    return b"".join(pieces(answer))


def _read(answer: requests.Response) -> None:
    """Read the body of an answer, for requests to find there.

    Raises:
        RequestException: The answer breaks off, takes too long, or is too large.

    """
    try:
        body = whole(answer)
    except requests.RequestException:
        raise
    except (urllib3.exceptions.HTTPError, OSError) as broken:
        raise requests.exceptions.ChunkedEncodingError(broken, request=answer.request) from broken
    finally:
        answer.raw.close()
    answer.raw = _Body(body)


class _Body(io.BytesIO):
    """A body that was read, with the signature of urllib3's responses."""

    def read1(self, size: int | None = -1, /, decode_content: bool | None = None) -> bytes:  # noqa: ARG002  (nothing is left to decode)
        return super().read1(size)


def lines(answer: requests.Response) -> Iterator[bytes]:
    """Yield the lines of an answer's body as they arrive, without line ends; limits and errors as in `pieces`."""
    begun = b""
    for piece in pieces(answer):
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield (begun + line).rstrip(b"\r")
            begun = b""
        begun += rest
    if begun:
        yield begun


def parsed(data: bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: The data is not valid JSON, or is nested too deeply.

    """
    try:
        return json.loads(data)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep


class Budget:
    """The seconds left for a request and its answer; every `rate` received bytes add one second."""

    def __init__(self, seconds: float, rate: float) -> None:
        self.seconds, self._rate = seconds, rate
        self.begin()

    def begin(self) -> None:
        """Restart the budget for the next request."""
        self._ends = time.monotonic() + self.seconds

    def received(self, size: int) -> None:
        """Extend the time after receiving `size` bytes."""
        self._ends += size / self._rate

    def left(self) -> float:
        """Return the seconds that are left.

        Raises:
            TimeoutError: The time is used up.

        """
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        return left


class Session(requests.Session):
    """A session that gives each request one time budget; mount `Bounded` adapters."""

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request and follow its redirects within one budget."""
        for adapter in self.adapters.values():
            if isinstance(adapter, Bounded):
                adapter.budget.begin()
        return super().request(*args, **kwargs)


class Bounded(HTTPAdapter):
    """A requests adapter that limits each answer: in time, and to `largest` bytes unless it is streamed.

    The budget begins when the adapter is made; a `Session` restarts it for each request.
    """

    def __init__(
        self, *, seconds: float = SECONDS, rate: float = SLOWEST, largest: int = LARGEST, max_retries: Retry | int = 0
    ) -> None:
        self.budget, self.largest = Budget(seconds, rate), largest
        super().__init__(max_retries=max_retries)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the connection pools."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self.budget)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Create the connection pools of a proxy."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _pools(self.budget)
        return manager

    def send(self, request: requests.PreparedRequest, stream: bool = False, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; read the whole answer unless `stream` is set.

        The body of a redirect is always read here, since requests would read it without a limit.

        Raises:
            RequestException: The answer is missing, breaks off, takes too long, or is too large.

        """
        try:
            self.budget.left()
            response = super().send(request, True, *args, **kwargs)
        except TimeoutError as late:
            raise LateError(f"it went on for more than {self.budget.seconds:.0f} s", request=request) from late
        except _FramingError as endless:
            raise EndlessError(str(endless), request=request) from endless
        if not stream or response.is_redirect:
            _read(response)
        return response


class _Timed(io.RawIOBase):
    """Raw reader of a socket that stops when the budget is used up."""

    def __init__(self, connection: socket.socket, budget: Budget) -> None:
        self._connection, self._budget = connection, budget
        self._each = connection.gettimeout()
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._budget.left()
        self._connection.settimeout(left if self._each is None else min(left, self._each))
        size = self._raw.readinto(buffer)
        self._budget.received(size or 0)
        return size

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Framed(io.BufferedReader):
    """A buffered reader that limits the bytes outside of the body.

    http.client and urllib3 read status lines, headers, chunk sizes and trailers as lines, and nothing else as lines. They
    limit the length of a line, but neither the number of interim answers nor that of trailers.
    """

    def __init__(self, raw: _Timed) -> None:
        super().__init__(raw)
        self._allowed = _FRAMING

    def readline(self, size: int | None = -1, /) -> bytes:
        most = self._allowed + 1
        line = super().readline(most if size is None or size < 0 else min(size, most))
        self._allowed -= len(line)
        if self._allowed < 0:
            raise _FramingError("its headers or trailers do not end")
        return line

    def read(self, size: int | None = -1, /) -> bytes:
        return self._body(super().read(size))

    def read1(self, size: int = -1, /) -> bytes:
        return self._body(super().read1(size))

    def readinto(self, buffer: Any, /) -> int:
        size = super().readinto(buffer)
        self._allowed += _PER_BYTE * size
        return size

    def _body(self, data: bytes) -> bytes:
        self._allowed += _PER_BYTE * len(data)
        return data


class _Response(http.client.HTTPResponse):
    """An HTTP response that reads through `_Timed`."""

    def __init__(self, connection: socket.socket, *args: Any, budget: Budget, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        plain, self.fp = self.fp, _Framed(_Timed(connection, budget))
        plain.close()


def _pools(budget: Budget) -> dict[str, type[HTTPConnectionPool]]:
    response = staticmethod(functools.partial(_Response, budget=budget))
    plain = type("Plain", (HTTPConnection,), {"response_class": response})
    secure = type("Secure", (HTTPSConnection,), {"response_class": response})
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
