# SPDX-License-Identifier: Apache-2.0
"""What a forge says of repositories and pull requests, as plain values; and where a repository's forge is."""

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.model.ids import CommitId

API = "GITHUB_API_URL"
"""The variable that names another API, as in GitHub's own workflows."""

GITHUB = "github.com"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_PATH = re.compile(rf"/?(?P<owner>{_NAME})/(?P<name>{_NAME}?)(?:\.git)?/?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on a forge."""

    host: str
    owner: str
    name: str

    @property
    def shown(self) -> str:
        """`owner/name`."""
        return f"{self.owner}/{self.name}"


class PullState(StrEnum):
    """Where a pull request stands."""

    DRAFT = "draft"
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"

    @property
    def lives(self) -> bool:
        """Whether it can still be merged."""
        return self in (PullState.DRAFT, PullState.OPEN)


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request. `head` is `owner:branch`; `merge` the commit that it was merged as, at `merged` (ISO 8601, UTC)."""

    number: int
    address: str
    title: str
    state: PullState
    author: str
    head: str
    commit: CommitId
    base: str
    merge: CommitId | None = None
    merged: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A pull request that a search found."""

    number: int
    address: str
    title: str
    author: str


@dataclass(frozen=True, slots=True)
class Fork:
    """A repository that pull requests come from. `upstream` is the one that it was forked from, None where it is no fork."""

    repository: Repository
    upstream: str | None


@dataclass(frozen=True, slots=True)
class Reviews:
    """Who has approved, and who asks for changes, each by their last word."""

    approved: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checks:
    """How the checks of a commit ended: how many passed, the names of those that failed, how many have not ended."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    pending: int = 0


def repository(git: str) -> Repository:
    """The repository that an address of git names: https://HOST/OWNER/NAME, ssh://… or git@HOST:OWNER/NAME.

    Raises:
        StackError: it is none on a forge.

    """
    parts = _split(git)
    host, path = parts.hostname or "", parts.path
    if not parts.scheme and (short := _SCP.fullmatch(git)):
        host, path = short["host"], short["path"]
    found = _PATH.fullmatch(path)
    if not host or not found or parts.scheme not in ("https", "http", "ssh", ""):
        raise StackError(f"{redacted(git)} is no repository of a forge", "it has to be like https://github.com/OWNER/NAME")
    return Repository(host.lower(), found["owner"], found["name"])


def api(host: str) -> str:
    """The address of a forge's API: `$GITHUB_API_URL`, else GitHub's own, else that of a GitHub Enterprise server.

    Raises:
        StackError: the variable names none that a token may be sent to.

    """
    named = os.environ.get(API, "").rstrip("/")
    if not named:
        return f"https://api.{GITHUB}" if host == GITHUB else f"https://{host}/api/v3"
    parts = _split(named)
    if not parts.hostname or parts.username is not None or parts.query or parts.scheme not in ("https", "http"):
        raise StackError(f"{API} is {redacted(named)}, which is no API's address", "it has to be like https://api.github.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise StackError(f"{API} is {redacted(named)}, which is not secure", "use https: a token goes there")
    return named


def _split(address: str) -> SplitResult:
    """The parts of an address; of one that is none, nothing."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
