# SPDX-License-Identifier: Apache-2.0
"""An HTTP session that reaches package indexes with the user's settings; `file://` indexes are supported."""

import io
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth
from requests_file import FileAdapter
from urllib3.exceptions import InsecureRequestWarning, ReadTimeoutError
from urllib3.util import Retry

from stack.base import bounded_http
from stack.base.addresses import redacted
from stack.base.bounded_http import Bounded
from stack.base.errors import StackError
from stack.store.indexes import Index, Settings

_OFFLINE = "check the network or the configured index; or use --source git"
_BUSY = (502, 503, 504)
_LOCAL = ("localhost", "127.0.0.1", "::1")
_PAUSE = 0.25
"""Seconds before the first retry; doubled for each further one."""


def session(settings: Settings) -> requests.Session:
    """Create a session with the certificates, credentials, proxy and retries of the settings.

    Raises:
        StackError: A certificate file is missing.

    """
    for file in (settings.certificates, settings.client_certificate):
        if file is not None and not file.exists():
            raise StackError(f"the certificate file {file} does not exist", "correct pip's setting cert or client-cert")
    made = bounded_http.Session()
    retry = Retry(
        total=settings.retries,
        backoff_factor=_PAUSE,
        status_forcelist=_BUSY,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    made.mount("http://", Bounded(max_retries=retry))
    made.mount("https://", Bounded(max_retries=retry))
    for host in settings.trusted_hosts:
        for end in ("/",) if _has_port(host) else ("/", ":"):
            made.mount(f"https://{host}{end}", _Unverified(max_retries=retry))
    if any(index.url.startswith("file:") for index in settings.indexes):
        made.mount("file://", _Folders())
    made.auth = _Credentials(settings.indexes)
    made.verify = str(settings.certificates) if settings.certificates else True
    made.cert = str(settings.client_certificate) if settings.client_certificate else None
    if settings.proxy:
        made.proxies = {"http": settings.proxy, "https": settings.proxy}
    return made


def failure(url: str, error: Exception) -> StackError:
    """Turn a failed request into an error for the user; the library's message is left out, since it may hold credentials."""
    where = redacted(url)
    if isinstance(error, requests.exceptions.SSLError):
        return StackError(f"the certificate of {where} is not trusted", "check pip's setting cert, or PIP_CERT")
    if isinstance(error, requests.exceptions.HTTPError) and error.response is not None:
        status = error.response.status_code
        refused = status in (requests.codes.unauthorized, requests.codes.forbidden)
        return StackError(
            f"{where} answered {status}",
            "check the credentials of the configured index (pip's index-url, or netrc)" if refused else _OFFLINE,
        )
    if isinstance(error, requests.exceptions.Timeout | ReadTimeoutError) or isinstance(_reason(error), ReadTimeoutError):
        return StackError(f"{where} did not answer in time", _OFFLINE)
    if isinstance(error, bounded_http.EndlessError):
        return StackError(f"{where} answers without end", "check the configured index")
    if isinstance(error, (requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL)):
        return StackError(f"{where} is not an address that can be fetched", "check the configured index")
    return StackError(f"{where} cannot be reached", _OFFLINE)


def _reason(error: Exception) -> object:
    """Return the reason of the last failed try."""
    return getattr(error.args[0], "reason", None) if error.args else None


def insecure(index: Index, settings: Settings) -> StackError | None:
    """Return an error if pip's rule forbids the index: plain HTTP needs this machine or a host that the user trusts."""
    parts = urlsplit(index.url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host in _LOCAL or not settings.trusted_hosts.isdisjoint({host, parts.netloc.lower()}):
        return None
    return StackError(f"{redacted(index.url)} is not secure", "use https, or name its host in pip's setting trusted-host")


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].find(":") >= 0


class _Credentials(AuthBase):
    """Adds an index's credentials to requests to its own server, and netrc's to all others."""

    def __init__(self, indexes: tuple[Index, ...]) -> None:
        self._known = {_server(index.url): index for index in reversed(indexes) if index.user is not None}

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = request.url or ""
        index = self._known.get(_server(url))
        own = (index.user, index.password or "") if index is not None and index.user is not None else None
        if credentials := own or get_netrc_auth(url):
            HTTPBasicAuth(*credentials)(request)
        return request


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


class _Unverified(Bounded):
    """A transport without certificate checks, for hosts that the user's configuration trusts."""

    def send(self, request: requests.PreparedRequest, stream: bool = False, *args: Any, **kwargs: Any) -> requests.Response:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InsecureRequestWarning)
            return super().send(request, stream, *args, **(kwargs | {"verify": False}))


class _Folders(FileAdapter):
    """A transport for `file://` addresses; a folder stands for its `index.html`, as on a web server."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        url = request.url or ""
        path = Path(unquote(urlsplit(url).path))
        if path.is_dir():
            request.url, path = url.rstrip("/") + "/index.html", path / "index.html"
        if path.exists() and not path.is_file():
            raise requests.exceptions.InvalidURL(f"{path} is not a regular file", request=request)
        response = super().send(request, *args, **kwargs)
        if not kwargs.get("stream"):  # otherwise nobody closes the file
            with response.raw as file:
                body = file.read(bounded_http.LARGEST + 1)
            if len(body) > bounded_http.LARGEST:
                raise bounded_http.EndlessError(f"{path} is larger than {bounded_http.LARGEST} bytes", request=request)
            response.raw = io.BytesIO(body)
        return response
