# SPDX-License-Identifier: Apache-2.0
"""Ask Hugging Face's hub, or a mirror of it, for the files of a revision and for their bytes; its answers are not trusted.

The token goes to the hub's own address only: large files are redirected to other hosts, which get none.
"""

import fnmatch
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import requests

from stack.base import bounded_http
from stack.base.errors import StackError
from stack.base.text import printable
from stack.owner.hub import WANTED, Part
from stack.serving.demands import is_loopback

_ADDRESS = "https://huggingface.co"
_SECONDS = 60.0
_REDIRECTS = 5
_LARGEST = 2**50
"""Bytes of the largest file that a listing may name."""
_HASH = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,254}")
_TRUE = {"1", "ON", "YES", "TRUE"}


class PassingError(Exception):
    """Raised for a failure that another attempt may not have; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub: its address and the token of its user. `home`: the folder of Hugging Face's files; `cache`: that of its models."""

    address: str
    token: str | None = field(repr=False)
    home: Path
    cache: Path
    offline: bool

    def listed(self, repository: str, revision: str | None) -> tuple[str, tuple[Part, ...]]:
        """Return the commit of a revision (None: the newest), and the files that a server reads.

        Raises:
            PassingError: The hub does not answer.
            StackError: It refuses, or answers with anything but that.

        """
        path = f"/api/models/{repository}{f'/revision/{revision}' if revision else ''}?blobs=true"
        with self._answer(self.address + path, repository) as answer:
            try:
                values = bounded_http.parsed(bounded_http.whole(answer))
            except ValueError as bad:
                raise PassingError("the hub's answer is not valid JSON") from bad
        return _read(values, repository, revision)

    @contextmanager
    def opened(self, repository: str, commit: str, part: Part, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Yield the bytes of a file from a place on, with the place from which they really come: 0 if the host cannot go on.

        Raises:
            PassingError: The hub does not answer.
            StackError: It refuses.

        """
        address = f"{self.address}/{repository}/resolve/{commit}/{quote(part.name)}"
        with self._answer(address, repository, start=start, largest=part.size - start + 1) as answer:
            if answer.status_code == 206 and not answer.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                raise PassingError(f"the host of {part.name} sends another part than the wanted one")
            yield (start if answer.status_code == 206 else 0), bounded_http.pieces(answer)

    @contextmanager
    def _answer(
        self, address: str, repository: str, *, start: int = 0, largest: int = bounded_http.LARGEST
    ) -> Iterator[requests.Response]:
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
        for _ in range(_REDIRECTS):
            key = self.token if _origin(address) == _origin(self.address) else None
            session = bounded_http.session(seconds=_SECONDS, rate=bounded_http.SLOWEST, largest=largest, key=key)
            with session, _asked(session, address, headers) as answer:
                if not answer.is_redirect:
                    _demand_good(answer, repository)
                    yield answer
                    return
                address = _target(address, answer.headers["Location"])
        raise PassingError("the hub redirects without an end")


def here(environment: Mapping[str, str] | None = None) -> Hub:
    """Read where models come from and are kept, from the variables and files of Hugging Face's own programs.

    Raises:
        StackError: HF_ENDPOINT is not an encrypted address.

    """
    given = os.environ if environment is None else environment
    caches = Path(given.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    home = Path(given.get("HF_HOME") or caches / "huggingface").expanduser()
    cache = Path(given.get("HF_HUB_CACHE") or home / "hub").expanduser()
    token = given.get("HF_TOKEN", "").strip() or _text(Path(given.get("HF_TOKEN_PATH") or home / "token").expanduser())
    offline = any(given.get(name, "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    address = (given.get("HF_ENDPOINT") or _ADDRESS).rstrip("/")
    _demand_encrypted(address)
    return Hub(address, token or None, home, cache, offline)


def _demand_encrypted(address: str) -> None:
    """Refuse an address that would get the token, and send the model, without encryption; a mirror on this machine needs none.

    Raises:
        StackError: It is one.

    """
    try:
        scheme, host, _ = _origin(address)
    except ValueError:  # of a port or of an IPv6 address
        scheme, host = "", None
    if scheme == "https" and host:
        return
    if scheme != "http" or not host or not is_loopback(host):
        raise StackError(
            f"HF_ENDPOINT is {printable(address)!r:.100}", "write https://HOST, or unset it; http is for 127.0.0.1 only"
        )


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


@contextmanager
def _asked(session: requests.Session, address: str, headers: Mapping[str, str]) -> Iterator[requests.Response]:
    try:
        answer = session.get(address, headers=dict(headers), timeout=_SECONDS, stream=True, allow_redirects=False)
    except bounded_http.BROKEN as failed:
        raise PassingError(f"{urlsplit(address).netloc}: {bounded_http.why(failed)}") from failed
    except ValueError as odd:  # requests reads where a redirect leads, even if it does not follow
        raise StackError(f"{urlsplit(address).netloc} redirects to no address", "unset HF_ENDPOINT, or ask its owner") from odd
    with answer:
        yield answer


def _demand_good(answer: requests.Response, repository: str) -> None:
    status = answer.status_code
    if status in (200, 206):
        return
    if status in (401, 403):
        raise StackError(
            f"the hub refuses {repository} ({status})",
            "accept its terms on its page, and set HF_TOKEN to a token that may read it",
        )
    if status == 404:
        raise StackError(f"the hub has no {repository} of this revision", "check the name, and HF_TOKEN if it is private")
    raise PassingError(f"{urlsplit(answer.url).netloc} answers with {status}")


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(address)
    return parts.scheme, parts.hostname, parts.port


def _target(address: str, location: str) -> str:
    """Return where a redirect leads.

    Raises:
        StackError: It is not an address of the web, or leaves an encrypted connection.

    """
    try:
        target = urljoin(address, location)
        scheme, host, _ = _origin(target)
    except ValueError:  # of a port or of an IPv6 address
        scheme, host = "", None
    if not host or scheme not in ("http", "https") or (scheme == "http" and urlsplit(address).scheme == "https"):
        raise StackError(f"the hub redirects to {location!r:.100}", "unset HF_ENDPOINT, or ask its owner")
    return target


def _read(values: Any, repository: str, revision: str | None) -> tuple[str, tuple[Part, ...]]:
    remedy = "unset HF_ENDPOINT, or ask its owner"
    commit = values.get("sha") if isinstance(values, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit) or (revision is not None and commit != revision):
        raise StackError(f"the hub answers the revision {revision} of {repository} with another one", remedy)
    files = values.get("siblings")
    found = [part for file in files if (part := _part(file)) is not None] if isinstance(files, list) else []
    if odd := next((part for part in found if not _HASH.fullmatch(part.hash) or part.size < 0), None):
        raise StackError(f"the hub names no hash or size of {odd.name} of {repository}", remedy)
    if not any(part.name.endswith(".safetensors") for part in found):
        raise StackError(f"{repository} has no weights in safetensors", "name the folder of a checkpoint with --model")
    return commit, tuple(found)


def _part(file: Any) -> Part | None:
    """Read one file of a listing; None for one that no server reads. An empty hash or a negative size means that none is named."""
    name = file.get("rfilename") if isinstance(file, dict) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not any(fnmatch.fnmatchcase(name, form) for form in WANTED):
        return None
    lfs = file.get("lfs")
    hashed = lfs.get("sha256") if isinstance(lfs, dict) else file.get("blobId")
    size = file.get("size")
    known = isinstance(size, int) and size <= _LARGEST
    return Part(name, size if known else -1, hashed if isinstance(hashed, str) else "")
