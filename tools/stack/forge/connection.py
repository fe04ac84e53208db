# SPDX-License-Identifier: Apache-2.0
"""Send requests to a forge's API: answers have a maximal size and time, and redirects are refused, so a token stays at its host.

Nothing is retried: the caller knows which requests may be repeated.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from stack import __version__
from stack.base import bounded_http
from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.forge.services import GITHUB, Service

LARGEST = 32 << 20
"""Maximal bytes of an answer. A page of a hundred pull requests has about 3 MB; GitHub truncates diffs long before."""
SLOWEST = 120.0
"""Maximal seconds for one answer."""
MOST = 1000
"""Maximal number of list entries that are read."""
_SILENT = 30
"""Maximal seconds without a byte."""


class StatusError(Exception):
    """Raised for an answer that is an error: `status` is the HTTP status, `content` the parsed JSON, None without any."""

    def __init__(self, answer: requests.Response) -> None:
        super().__init__(answer.status_code)
        self.status, self.headers = answer.status_code, answer.headers
        try:
            self.content = bounded_http.parsed(answer.content)
        except ValueError:
            self.content = None


class Connection:
    """A connection to an API at `address`. Each method raises a StatusError for an error status.

    Each also raises a StackError if the answer is a redirect, is too large or takes too long; a RequestException if there is no
    answer; a ValueError or TypeError if the answer does not have the forge's form.
    """

    def __init__(self, address: str, token: str | None, service: Service = GITHUB) -> None:
        self._address, self._service = address, service
        self._session = bounded_http.session(seconds=SLOWEST, largest=LARGEST, key=token)
        self._session.auth = self._session.auth or (lambda request: request)  # else requests takes one from ~/.netrc
        self._session.headers.update({"User-Agent": f"stack/{__version__}", **service.headers})

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def get(self, path: str, **query: str | int) -> Any:
        """Get the JSON at a path."""
        return bounded_http.parsed(self._answer("GET", path, query).content)

    def listed(self, path: str, key: str | None = None, most: int = MOST, **query: str | int) -> Iterator[Any]:
        """Yield the entries of a list that comes in pages, or of the list `key` in each page: at most `most`."""
        size = self._service.page
        for page in range(1, most // size + 1):
            sizes = {self._service.page_key: size} | ({"page": page} if page > 1 else {})
            answer = self._answer("GET", path, {**query, **sizes})
            content = bounded_http.parsed(answer.content)
            yield from content if key is None else content[key]
            if "next" not in answer.links:  # the address that it names is never requested
                return

    def bytes_of(self, path: str, kind: str) -> bytes:
        """Get what is at a path in another media type than JSON."""
        return self._answer("GET", path, {}, kind=kind).content

    def post(self, path: str, content: Mapping[str, Any]) -> Any:
        """Post JSON, and return the JSON of the answer."""
        return bounded_http.parsed(self._answer("POST", path, {}, content).content)

    def patch(self, path: str, content: Mapping[str, Any]) -> Any:
        """Change what is at a path, and return the JSON of the answer."""
        return bounded_http.parsed(self._answer("PATCH", path, {}, content).content)

    def put(self, path: str, content: Mapping[str, Any]) -> Any:
        """Replace values at a path, and return the JSON of the answer."""
        return bounded_http.parsed(self._answer("PUT", path, {}, content).content)

    def delete(self, path: str) -> None:
        """Delete what is at a path."""
        self._answer("DELETE", path, {})

    def _answer(
        self, method: str, path: str, query: Mapping[str, str | int], content: Any = None, kind: str | None = None
    ) -> requests.Response:
        host = urlsplit(self._address).hostname
        try:
            answer = self._session.request(
                method,
                self._address + path,
                params=dict(query),
                json=content,
                headers={"Accept": kind or self._service.media},
                timeout=_SILENT,
                allow_redirects=False,
            )
        except bounded_http.EndlessError as endless:
            raise StackError(
                f"the answer of {host} to {path} does not end: {endless}", "check the address: this is not a forge"
            ) from endless
        if answer.is_redirect:
            raise _moved(f"{host}", path, answer.headers.get("location", ""), self._service)
        if answer.status_code == requests.codes.accepted:
            raise StackError(f"{host} has no answer yet to {path}", "run the command again in a minute")
        if not answer.ok:
            raise StatusError(answer)
        return answer


def part(text: str) -> str:
    """Encode text as one part of a path."""
    return quote(text, safe="")


def _moved(host: str, path: str, location: str, service: Service) -> StackError:
    where = redacted(location) or "nowhere"
    return StackError(
        f"{host} says that {path} is now at {where}",
        f"if the repository was renamed, correct its `git` in pins.toml or the remote; if the API moved, {service.api_variable}",
    )
