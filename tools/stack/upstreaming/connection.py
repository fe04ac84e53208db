# SPDX-License-Identifier: Apache-2.0
"""Connect PyGithub to a forge: answers have a maximal size and time, and redirects are refused, so a token stays at its host."""

from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from github import Auth, Github
from github.Requester import HTTPRequestsConnectionClass, HTTPSRequestsConnectionClass, Requester, RequestsResponse

from stack import __version__
from stack.base import bounded_http
from stack.base.addresses import redacted
from stack.base.errors import StackError

LARGEST = 32 << 20
"""Maximal bytes of an answer. A page of a hundred pull requests has about 3 MB; GitHub truncates diffs long before."""
SLOWEST = 120.0
"""Maximal seconds for one answer."""
_SILENT = 30
"""Maximal seconds without a byte."""
_ACCEPTED = 202


def client(api: str, token: str | None) -> Github:
    """Create PyGithub's client on this module's connections. It never retries: its caller knows which requests may be repeated."""
    Requester.injectConnectionClasses(_Plain, _Secure)
    try:
        return Github(
            base_url=api,
            auth=Auth.Token(token) if token else None,
            user_agent=f"stack/{__version__}",
            timeout=_SILENT,
            per_page=100,
            retry=None,
            seconds_between_requests=None,
            lazy=True,  # never request an address that an answer names
            api_version="2022-11-28",
        )
    finally:
        Requester.resetConnectionClasses()


class _Answer(RequestsResponse):
    """An answer that was read completely. Bytes that are not UTF-8 are kept as surrogates: a diff may contain any bytes."""

    def __init__(self, answer: requests.Response, body: bytes) -> None:
        super().__init__(answer)
        self._body = body

    def read(self) -> str:
        return self._body.decode("utf-8", "surrogateescape")


class _Secure(HTTPSRequestsConnectionClass):
    def getresponse(self) -> _Answer:
        return _answered(self)


class _Plain(HTTPRequestsConnectionClass):
    def getresponse(self) -> _Answer:
        return _answered(self)


def _answered(connection: HTTPSRequestsConnectionClass | HTTPRequestsConnectionClass) -> _Answer:
    """Send the connection's request, and return its answer.

    Raises:
        StackError: the answer is a redirect, or is too large or too slow.
        requests.RequestException: the server cannot be reached, or the connection broke.

    """
    sent: Any = connection.input
    with connection.session.request(
        connection.verb,
        f"{connection.protocol}://{connection.host}:{connection.port}{connection.url}",
        headers=connection.headers,
        data=sent,
        timeout=connection.timeout,
        verify=connection.verify,
        allow_redirects=False,
        stream=True,
    ) as answer:
        path = urlsplit(connection.url).path
        if answer.is_redirect:
            raise _moved(connection.host, path, answer.headers.get("location", ""))
        if answer.status_code == _ACCEPTED:  # PyGithub would repeat the request until the status changes
            raise StackError(f"{connection.host} has no answer yet to {path}", "run the command again in a minute")
        try:
            body = _whole(answer)
        except bounded_http.EndlessError as endless:
            raise StackError(
                f"the answer of {connection.host} to {path} does not end: {endless}", "check the address: this is not a forge"
            ) from endless
        except urllib3.exceptions.ReadTimeoutError as late:
            raise requests.exceptions.ReadTimeout from late
        except urllib3.exceptions.HTTPError as broken:
            raise requests.exceptions.ConnectionError from broken
        return _Answer(answer, body)


def _whole(answer: requests.Response) -> bytes:
    body = bytearray()
    for piece in bounded_http.pieces(answer, SLOWEST):
        body += piece
        if len(body) > LARGEST:
            raise bounded_http.EndlessError(f"more than {LARGEST >> 20} MB came")
    return bytes(body)


def _moved(host: str, path: str, location: str) -> StackError:
    where = redacted(location) or "nowhere"
    return StackError(
        f"{host} says that {path} is now at {where}",
        "if the repository was renamed, correct its `git` in pins.toml or the remote; if the API moved, GITHUB_API_URL",
    )
