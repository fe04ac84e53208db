# SPDX-License-Identifier: Apache-2.0
"""HTTP with a server that nobody vouches for: an answer has an end, in time and in size, and comes from whom was asked."""

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
"""What is raised where no answer comes, or not all of it."""


class EndlessError(OSError):
    """An answer that goes on for too long, or is beyond all measure."""


def is_here(address: str) -> bool:
    """Whether an address is of this machine, so that this machine's hardware is what a server there runs on."""
    host = urlsplit(address).hostname or ""
    try:
        ip = ip_address(host)
    except ValueError:
        return host in ("localhost", socket.gethostname())
    return ip.is_loopback or _own(ip)


def _own(ip: IPv4Address | IPv6Address) -> bool:
    """Whether an interface of this machine has the address: no other can be listened at."""
    try:
        with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM) as one:
            one.bind((str(ip), 0))
    except OSError:
        return False
    return True


def why(failed: Exception) -> str:
    """What went wrong, in few words: what the library says of it takes lines."""
    return str(failed) if isinstance(failed, EndlessError) else type(failed).__name__


@contextmanager
def asked(
    address: str, content: Mapping[str, Any] | None, seconds: float, key: str | None = None
) -> "Iterator[requests.Response]":
    """The answer to a GET, or to a POST of `content` as JSON: its head; its body is read by `pieces` or `whole`.

    `key`: of the API, where the server wants one; what ~/.netrc or the address has for it is not sent in its place. All of it, from
    the request to the last byte of the body, takes `seconds` at most, however slowly it drips. A redirect is not followed: what is
    said would be of another server.

    Raises:
        one of BROKEN: no answer comes.

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
    """Shows a server a key. As a mere header it would be replaced by what ~/.netrc has for that server."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


def pieces(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """The body of an answer as it comes, for `seconds` and up to `LARGEST` bytes.

    Raises:
        one of BROKEN: it breaks off, or has no end.

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
    """The whole body of an answer; see `pieces`."""
    return b"".join(pieces(answer, seconds))


def lines(answer: requests.Response, seconds: float) -> Iterator[bytes]:
    """The lines of an answer's body as they come, without their ends; see `pieces`."""
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
    """The value of some JSON.

    Raises:
        ValueError: it is none, or nested too deeply.

    """
    try:
        return json.loads(data)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
