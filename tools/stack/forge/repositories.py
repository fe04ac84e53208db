# SPDX-License-Identifier: Apache-2.0
"""Plain values for repositories and pull requests of a forge."""

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from stack.base.addresses import redacted
from stack.base.errors import StackError
from stack.model.ids import CommitId

_SCP = re.compile(r"(?:[\w.-]+@)?(?P<host>[\w.-]+):(?P<path>[^/].*)")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_PATH = re.compile(rf"/?(?P<owner>{_NAME}(?:/{_NAME}){{0,30}})/(?P<name>{_NAME}?)(?:\.git)?/?")


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository on a forge. At GitLab, `owner` may be a group in a group: `group/subgroup`."""

    host: str
    owner: str
    name: str

    @property
    def shown(self) -> str:
        """The name `owner/name`."""
        return f"{self.owner}/{self.name}"


class PullState(StrEnum):
    """The state of a pull request."""

    DRAFT = "draft"
    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"

    @property
    def lives(self) -> bool:
        """Return whether it can still be merged."""
        return self in (PullState.DRAFT, PullState.OPEN)


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request.

    `head` is `owner:branch`. `merge` is the commit that it was merged as, and `merged` the time (ISO 8601, UTC).
    """

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
    """A search result: a pull request."""

    number: int
    address: str
    title: str
    author: str


@dataclass(frozen=True, slots=True)
class Fork:
    """A repository that pull requests come from.

    `upstream` is the repository that it was forked from, None if it was not forked.
    """

    repository: Repository
    upstream: str | None


@dataclass(frozen=True, slots=True)
class Reviews:
    """The logins of those who approve and of those who request changes, by the latest review of each."""

    approved: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks of a commit: the number that passed, the names that failed, the number that have not ended."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    pending: int = 0


def repository(git: str, *, nested: bool = False) -> Repository:
    """Parse a git address (https://HOST/OWNER/NAME, ssh://… or git@HOST:OWNER/NAME) into a repository.

    Args:
        git: the address.
        nested: allow an owner within another one, as GitLab has them.

    Raises:
        StackError: the address does not name a repository of a forge.

    """
    parts = _split(git)
    host, path = parts.hostname or "", parts.path
    if not parts.scheme and (short := _SCP.fullmatch(git)):
        host, path = short["host"], short["path"]
    match = _PATH.fullmatch(path)
    if not host or not match or ("/" in match["owner"] and not nested) or parts.scheme not in ("https", "http", "ssh", ""):
        raise StackError(f"{redacted(git)} is not a repository of a forge", "it has to be like https://github.com/OWNER/NAME")
    return Repository(host.lower(), match["owner"], match["name"])


def _split(address: str) -> SplitResult:
    """Split an address into its parts; an invalid address gives empty parts."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
