# SPDX-License-Identifier: Apache-2.0
"""HTTP client for untrusted servers: limits on time and size, no redirects, no credentials from elsewhere."""

import json
import math
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.auth import AuthBase

from stack.base.bounded import Bounded

LARGEST = 256 * 1024 * 1024
"""Bytes of the largest answer that is read."""
_AT_ONCE = 2**16

BROKEN = (requests.RequestException, urllib3.exceptions.HTTPError, OSError)
"""The exceptions raised when an answer is missing or incomplete."""


class EndlessError(OSError):
    """Raised when an answer takes too long or is too large."""


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


@contextmanager
def asked(
    address: str, content: Mapping[str, Any] | None, seconds: float, key: str | None = None
) -> "Iterator[requests.Response]":
    """Send a GET, or a POST of `content` as JSON, and yield the response; read its body with `pieces` or `whole`.

    `key` is the API key, if the server needs one; credentials from ~/.netrc or the address never replace it. The whole exchange,
    up to the last byte of the body, takes at most `seconds`, even if the server drips. Redirects are not followed: the answer
    would be another server's.

    Raises:
        one of BROKEN: No answer arrives.

    """
    with requests.Session() as session:
        # No proxy stands between two processes of one machine.
        session.trust_env = not is_here(address)
        session.auth = _Bearer(key) if key else None
        for scheme in ("http://", "https://"):
            session.mount(scheme, Bounded(seconds=seconds, rate=math.inf))
        method = "GET" if content is None else "POST"
        with session.request(method, address, json=content, timeout=seconds, stream=True, allow_redirects=False) as answer:
            yield answer


class _Bearer(AuthBase):
    """Authentication with a bearer token. requests would replace a plain header by the entry of ~/.netrc."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def pieces(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """Yield the body of an answer in pieces, for at most `seconds` and up to `LARGEST` bytes.

    Raises:
        one of BROKEN: The body breaks off, takes too long, or is too large.

    """
    ends, size = time.monotonic() + seconds, 0
    while piece := _next(answer, seconds):
        size += len(piece)
        if size > LARGEST:
            raise EndlessError(f"more than {LARGEST // 2**20} MiB came")
        if time.monotonic() > ends:
            raise EndlessError(f"it went on for more than {seconds:.0f} s")
        yield piece


def _next(answer: requests.Response, seconds: float) -> bytes:
    try:
        return bytes(answer.raw.read1(_AT_ONCE, decode_content=True))
    except urllib3.exceptions.ReadTimeoutError as late:
        raise EndlessError(f"it went on for more than {seconds:.0f} s") from late


def whole(answer: requests.Response, seconds: float) -> bytes:
    """Return the whole body of an answer; limits and errors as in `pieces`."""
    return b"".join(pieces(answer, seconds))


def lines(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """Yield the lines of an answer's body as they arrive, without line ends; limits and errors as in `pieces`."""
    begun = b""
    for piece in pieces(answer, seconds):
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
