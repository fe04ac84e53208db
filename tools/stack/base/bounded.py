# SPDX-License-Identifier: Apache-2.0
"""Bounded HTTP for untrusted servers: limits on the time and the size of each answer.

requests and urllib3 limit each wait for bytes only, so a server that drips or never ends can hold a client for ever. Here the
whole answer has a time budget, header and redirects included. Each received byte extends it by what a slow line would need.
"""

import functools
import http.client
import io
import socket
import time
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util import Retry

LARGEST = 64 * 2**20
"""Bytes of the largest answer that is read into memory; the index page of a large project has ten million."""
SECONDS = 120.0
SLOWEST = 20_000.0
"""Bytes per second of the slowest line that a download tolerates."""
_AT_ONCE = 2**16


class EndlessError(requests.RequestException):
    """Raised when an answer is larger than the limit."""


class Budget:
    """The seconds left for an answer; every `rate` received bytes add one second."""

    def __init__(self, seconds: float, rate: float) -> None:
        self._seconds, self._rate = seconds, rate
        self.begin()

    def begin(self) -> None:
        """Restart the budget for the next answer."""
        self._ends = time.monotonic() + self._seconds

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


class Bounded(HTTPAdapter):
    """A requests adapter that limits each answer: in time, and to `largest` bytes unless it is streamed."""

    def __init__(
        self, *, seconds: float = SECONDS, rate: float = SLOWEST, largest: int = LARGEST, max_retries: Retry | int = 0
    ) -> None:
        self._budget, self._largest = Budget(seconds, rate), largest
        super().__init__(max_retries=max_retries)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the connection pools."""
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _pools(self._budget)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Create the connection pools of a proxy."""
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _pools(self._budget)
        return manager

    def send(self, request: requests.PreparedRequest, stream: bool = False, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request; read the whole answer unless `stream` is set."""
        self._budget.begin()
        response = super().send(request, True, *args, **kwargs)
        if not stream:
            whole(response, self._largest)
        return response


def whole(response: requests.Response, largest: int = LARGEST) -> None:
    """Read the body of an answer: at most `largest` bytes, counted after decompression.

    Raises:
        RequestException: The answer breaks off, takes too long, or is too large.

    """
    body = io.BytesIO()
    try:
        while piece := response.raw.read(_AT_ONCE, decode_content=True):
            body.write(piece)
            if body.tell() > largest:
                raise EndlessError(f"the answer is larger than {largest} bytes", response=response)
    except urllib3.exceptions.ReadTimeoutError as late:
        raise requests.exceptions.ReadTimeout(late, request=response.request) from late
    except (urllib3.exceptions.HTTPError, OSError) as broken:
        if isinstance(broken, requests.RequestException):
            raise
        raise requests.exceptions.ChunkedEncodingError(broken, request=response.request) from broken
    finally:
        response.raw.close()
    body.seek(0)
    response.raw = body


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


class _Response(http.client.HTTPResponse):
    """An HTTP response that reads through `_Timed`."""

    def __init__(self, connection: socket.socket, *args: Any, budget: Budget, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        plain, self.fp = self.fp, io.BufferedReader(_Timed(connection, budget))
        plain.close()


def _pools(budget: Budget) -> dict[str, type[HTTPConnectionPool]]:
    response = staticmethod(functools.partial(_Response, budget=budget))
    plain = type("Plain", (HTTPConnection,), {"response_class": response})
    secure = type("Secure", (HTTPSConnection,), {"response_class": response})
    return {
        "http": type("PlainPool", (HTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("SecurePool", (HTTPSConnectionPool,), {"ConnectionCls": secure}),
    }
