# SPDX-License-Identifier: Apache-2.0
"""How PyGithub reaches a forge: answers are bounded in size and time, and no redirection is followed: a token stays at its host."""

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
"""Bytes of an answer. A page of a hundred pull requests has about 3 MB; GitHub cuts diffs off long before."""
SLOWEST = 120.0
"""Seconds that one answer may take."""
_SILENT = 30
"""Seconds without a byte."""
_ACCEPTED = 202


def client(api: str, token: str | None) -> Github:
    """PyGithub's client on connections of this module. It retries nothing by itself: who calls it knows what may be repeated."""
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
            lazy=True,  # an address that an answer names is asked for nowhere
            api_version="2022-11-28",
        )
    finally:
        Requester.resetConnectionClasses()


class _Answer(RequestsResponse):
    """An answer that has been read. What is no UTF-8 in it stays what it is: a diff may hold anything."""

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
    """The answer to the connection's request.

    Raises:
        StackError: it points elsewhere, or is too large or too slow.
        requests.RequestException: there is none, or it broke off.

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
        if answer.status_code == _ACCEPTED:  # PyGithub would ask until there is another one
            raise StackError(f"{connection.host} has no answer yet to {path}", "run the command again in a minute")
        try:
            body = _whole(answer)
        except bounded_http.EndlessError as endless:
            raise StackError(
                f"{connection.host} does not come to an end with {path}: {endless}", "that is no forge"
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
        "where a repository was renamed, correct its `git` in pins.toml or the remote; where the API was, GITHUB_API_URL",
    )
