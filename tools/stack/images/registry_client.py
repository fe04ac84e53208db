# SPDX-License-Identifier: Apache-2.0
"""The few requests to a registry that skopeo cannot make: referrers, and indexes that name artifact types.

skopeo before 1.14 rewrites an index while it copies it, without `artifactType`. Everything read is bounded, and compared with its
digest where the digest is known.
"""

import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urljoin, urlsplit

import requests
from requests.auth import AuthBase, HTTPBasicAuth

from stack.base import bounded_http
from stack.base.bounded_http import BROKEN, Bounded
from stack.base.errors import StackError
from stack.images import registry_login
from stack.images.layout import INDEX, MANIFEST
from stack.images.reference import Reference
from stack.images.skopeo import Absent, Refused, Unreachable, digest

MANIFEST_LIMIT = 4 << 20
"""Maximal bytes of a manifest or index: the bound that the distribution specification sets."""
BLOB_LIMIT = 128 << 20
"""Maximal bytes of an attestation; the base64 of an SBOM of a large image has 30 MiB."""
_SECONDS = 120.0
_RATE = 20_000.0
_PAGES = 32
_OK, _CREATED, _ACCEPTED, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _NOT_MET = 200, 201, 202, 401, 403, 404, 412
_LACKS = (400, 404, 405, 501)
"""Answers of registries without the list of referrers; the specification names 404."""
_BUSY = (429, 500, 502, 503, 504)
"""docker-registry answers 500 to two writers of one tag at the same moment."""
_PAUSES = (0.1, 0.3, 1.0)
_CHALLENGE = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_ACCEPT = {"Accept": f"{INDEX}, {MANIFEST}"}
_HUB = {"docker.io": "registry-1.docker.io"}
_CERTIFICATES = ("~/.config/containers/certs.d", "/etc/containers/certs.d", "/etc/docker/certs.d")
"""Folders of further certificates, for each host, as skopeo reads them."""


class ChangedError(StackError):
    """Raised when a tag was changed between reading and writing it."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A manifest under a tag, and the registry's version mark of it, if it gives one."""

    data: bytes
    etag: str | None


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Nobody(AuthBase):
    """No login: without it requests would send the one of ~/.netrc."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class _Trusting(Bounded):
    """Trusts what the system, SSL_CERT_FILE and the folders of certificates for a host name."""

    def __init__(self, host: str, tls: bool) -> None:
        self._context = _context(host, tls)
        super().__init__(seconds=_SECONDS, rate=_RATE, largest=BLOB_LIMIT)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)


class RegistryClient:
    """A repository of a registry. Use it as a context manager, which closes its connections; `push` asks for the right to write.

    Raises:
        Absent: What is asked for does not exist.
        Refused: Other credentials are needed.
        Unreachable: There is no answer.
        StackError: Any other failure.

    """

    def __init__(self, repository: Reference, *, tls: bool = True, push: bool = False) -> None:
        self._place, self._shown, self._tls = _qualified(repository.place), repository.shown, tls
        host, _, self._name = self._place.partition("/")
        host = _HUB.get(host, host)
        self._base = f"https://{host}/v2/{self._name}/"
        self._session = bounded_http.session(seconds=_SECONDS, rate=_RATE, largest=BLOB_LIMIT)
        self._adapters = (_Trusting(host, tls), Bounded(seconds=_SECONDS, rate=_RATE, largest=BLOB_LIMIT))
        for scheme, adapter in zip(("https://", "http://"), self._adapters, strict=True):
            self._session.mount(scheme, adapter)
        self._session.verify = tls
        self._session.auth = _Nobody()
        self._session.trust_env = not bounded_http.is_here(self._base)
        self._login: registry_login.Login | None = None
        self._known, self._push = False, push

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session.close()

    def manifest(self, name: str) -> Tagged:
        """Return the manifest or index under a tag or digest; one by digest is compared with it."""
        answer = self._asked("GET", f"manifests/{name}", headers=_ACCEPT, limit=MANIFEST_LIMIT)
        self._demand(answer, _OK)
        if name.startswith("sha256:") and digest(answer.content) != name:
            raise StackError(
                f"{self._shown}@{name} has another digest", "the registry returns a different manifest: do not use it"
            )
        return Tagged(answer.content, answer.headers.get("ETag"))

    def referrers(self, subject: str) -> list[bytes] | None:
        """Return the pages of the list of what refers to a manifest; None if the registry has no such list."""
        pages: list[bytes] = []
        path: str | None = f"referrers/{subject}"
        while path is not None and len(pages) < _PAGES:
            answer = self._asked("GET", path, headers={"Accept": INDEX}, limit=MANIFEST_LIMIT)
            if answer.status_code in _LACKS and not pages:
                return None
            self._demand(answer, _OK)
            if answer.headers.get("Content-Type", "").partition(";")[0].strip() != INDEX:
                return None  # a registry, or a proxy, that answers every path
            pages.append(answer.content)
            following = answer.links.get("next", {}).get("url")
            path = self._below(urljoin(answer.url, following)) if following else None
        return pages

    def blob(self, name: str, size: int) -> bytes:
        """Return a blob, which has to have the size and the digest that a manifest names."""
        if not 0 <= size <= BLOB_LIMIT:
            raise StackError(f"{self._shown}: {name} has {size} bytes, more than {BLOB_LIMIT}", "do not use it")
        answer = self._asked("GET", f"blobs/{name}", limit=size)
        self._demand(answer, _OK)
        if digest(answer.content) != name:
            raise StackError(f"{self._shown}: {name} does not match its digest", "do not use it")
        return answer.content

    def put_blob(self, data: bytes) -> None:
        """Upload a blob unless the repository has it."""
        name = digest(data)
        if self._asked("HEAD", f"blobs/{name}").status_code == _OK:
            return
        begun = self._asked("POST", "blobs/uploads/")
        self._demand(begun, _ACCEPTED)
        place = urljoin(begun.url, begun.headers.get("Location", ""))
        joined = f"{place}{'&' if urlsplit(place).query else '?'}{urlencode({'digest': name})}"
        headers = {"Content-Type": "application/octet-stream"}
        self._demand(self._sent("PUT", joined, data=data, headers=headers), _CREATED)

    def put_manifest(self, name: str, data: bytes, media_type: str, *, before: Tagged | None = None) -> bool:
        """Write a manifest or index under a tag or digest, and return whether the registry lists it as a referrer by itself.

        `before` is what the tag named when it was read: registries that can compare then refuse to replace anything else.

        Raises:
            ChangedError: The tag names something else meanwhile.

        """
        headers = {"Content-Type": media_type}
        if before is not None and before.etag:
            headers["If-Match"] = before.etag
        answer = self._asked("PUT", f"manifests/{name}", data=data, headers=headers)
        if answer.status_code == _NOT_MET:
            raise ChangedError(f"{self._shown}:{name} was changed meanwhile", "run the command again")
        self._demand(answer, _CREATED)
        return "OCI-Subject" in answer.headers

    def _asked(self, method: str, path: str, **more: Any) -> requests.Response:
        return self._sent(method, self._base + path, **more)

    def _sent(self, method: str, address: str, *, limit: int = MANIFEST_LIMIT, **more: Any) -> requests.Response:
        answer = self._answered(method, address, limit, **more)
        if answer.status_code == _UNAUTHORIZED and self._authorized(answer.headers.get("WWW-Authenticate", "")):
            answer = self._answered(method, address, limit, **more)
        return answer

    def _answered(self, method: str, address: str, limit: int, **more: Any) -> requests.Response:
        """Ask again while the registry says that it is busy; every request here may be repeated."""
        for pause in _PAUSES:
            answer = self._once(method, address, limit, **more)
            if answer.status_code not in _BUSY:
                return answer
            time.sleep(pause)
        return self._once(method, address, limit, **more)

    def _once(self, method: str, address: str, limit: int, **more: Any) -> requests.Response:
        for adapter in self._adapters:
            adapter.largest = limit
            adapter.budget.seconds = _SECONDS + len(more.get("data") or b"") / _RATE
        try:
            return self._session.request(method, address, timeout=_SECONDS, **more)
        except bounded_http.LateError as late:
            raise self._unreachable(late) from late
        except bounded_http.EndlessError as large:
            raise StackError(f"{self._shown} answers with more than {limit} bytes", "do not use it") from large
        except requests.exceptions.ConnectionError as failed:
            if self._tls or not address.startswith("https:"):
                raise self._unreachable(failed) from failed
        except BROKEN as failed:
            raise self._unreachable(failed) from failed
        # As skopeo does without TLS verification: a registry may speak plain HTTP.
        self._base = self._base.replace("https:", "http:", 1)
        return self._once(method, address.replace("https:", "http:", 1), limit, **more)

    def _unreachable(self, failed: Exception) -> Unreachable:
        return Unreachable(
            f"{self._shown} cannot be reached ({bounded_http.why(failed)})",
            "check the name, the network and the registry's certificate",
        )

    def _authorized(self, challenge: str) -> bool:
        """Log in as the registry asks; return whether that changes anything."""
        if not self._known:
            self._login, self._known = registry_login.find(self._place), True
        scheme, _, rest = challenge.partition(" ")
        login = HTTPBasicAuth(self._login.user, self._login.password) if self._login is not None else None
        if scheme.lower() == "basic" and login is not None and isinstance(self._session.auth, _Nobody):
            self._session.auth = login
            return True
        if scheme.lower() != "bearer":
            return False
        fields = dict(_CHALLENGE.findall(rest))
        realm = fields.get("realm", "")
        # A password goes over plain HTTP only to a registry that the user has said needs no TLS.
        if urlsplit(realm).scheme not in (("https",) if self._tls else ("https", "http")):
            return False
        scope = fields.get("scope") or f"repository:{self._name}:pull"
        if (
            self._push
        ):  # from the first request on: some registries answer 403 to a token for reading, which names no other scope
            scope = f"{scope.rpartition(':')[0]}:pull,push"
        asked = {"service": fields.get("service", ""), "scope": scope}
        token = self._token(f"{realm}?{urlencode(asked)}", login)
        if token is None:
            return False
        self._session.auth = _Bearer(token)
        return True

    def _token(self, address: str, login: HTTPBasicAuth | None) -> str | None:
        answer = self._once("GET", address, MANIFEST_LIMIT, auth=login or _Nobody())
        try:
            content = bounded_http.parsed(answer.content) if answer.ok else {}
        except ValueError:
            return None
        token = (content.get("token") or content.get("access_token")) if isinstance(content, dict) else None
        return token if isinstance(token, str) else None

    def _demand(self, answer: requests.Response, status: int) -> None:
        if answer.status_code == status or (status == _CREATED and answer.status_code == _ACCEPTED):
            return
        if answer.status_code == _NOT_FOUND:
            raise Absent(f"{self._shown} lacks {urlsplit(answer.url).path.rpartition('/')[2]:.100}", "check the name")
        if answer.status_code in (_UNAUTHORIZED, _FORBIDDEN):
            raise Refused(f"{self._shown} is refused (status {answer.status_code})", "log in: skopeo login HOST")
        raise StackError(f"{self._shown} answers with status {answer.status_code}", "see the registry's log")

    def _below(self, address: str) -> str | None:
        """Return the path of an address below this repository; None if it is elsewhere."""
        return address.removeprefix(self._base) if address.startswith(self._base) else None


def _qualified(place: str) -> str:
    """Return a repository's full name: without a host it is one of Docker's, and those of one word are in `library`."""
    first, slash, _ = place.partition("/")
    if slash and (first == "localhost" or "." in first or ":" in first):
        return place
    return f"docker.io/{place}" if slash else f"docker.io/library/{place}"


def _context(host: str, tls: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not tls:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for folder in _CERTIFICATES:
        place = Path(folder).expanduser() / host
        for file in _named(place, "*.crt"):
            with suppress(OSError):
                context.load_verify_locations(file)
        for file in _named(place, "*.cert"):
            with suppress(OSError):
                context.load_cert_chain(file, file.with_suffix(".key"))
    return context


def _named(folder: Path, pattern: str) -> Iterator[Path]:
    with suppress(OSError):
        if os.access(folder, os.R_OK | os.X_OK):
            yield from sorted(folder.glob(pattern))


def descriptors(pages: list[bytes]) -> list[Mapping[str, Any]]:
    """Return the entries of the pages of an index; entries that are not objects are left out."""
    found: list[Mapping[str, Any]] = []
    for page in pages:
        with suppress(ValueError):
            content = bounded_http.parsed(page)
            entries = content.get("manifests") if isinstance(content, dict) else None
            found += [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return found
