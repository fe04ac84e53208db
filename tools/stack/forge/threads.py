# SPDX-License-Identifier: Apache-2.0
"""The issues and pull requests of the user's own repository, as plain values, and the interface that every forge has for them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stack.forge.repositories import PullState

MOST = 10_000
"""Maximal number of issues that are searched for one."""


class ThreadState(StrEnum):
    """The state of an issue."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Thread:
    """An issue. `author` is the account that opened it, empty if that is gone."""

    number: int
    title: str
    body: str
    state: ThreadState
    labels: tuple[str, ...] = ()
    author: str = ""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on an issue; `author` as in `Thread`."""

    body: str
    author: str = ""


@dataclass(frozen=True, slots=True)
class PullThread:
    """A pull request from a branch of the repository itself. `title` is without the words that make it a draft.

    `shown` is how a text on the forge refers to it, such as `pull request #4`.
    """

    number: int
    title: str
    body: str
    state: PullState
    labels: tuple[str, ...] = ()
    shown: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A run of a workflow. `conclusion` is empty until it has ended; `began` is ISO 8601 in UTC."""

    began: str
    conclusion: str
    event: str


class Threads(Protocol):
    """The issues and pull requests of one repository. Every method raises a StackError if the forge cannot be asked.

    A request that creates something is not repeated if its answer is lost.
    """

    @property
    def shown(self) -> str:
        """The repository's name."""

    @property
    def account(self) -> str:
        """The account that the token belongs to; empty if that is not known."""

    def close(self) -> None:
        """Close the connection."""

    def require_token(self) -> None:
        """Refuse to go on without a token."""

    def default_branch(self) -> str:
        """Return the branch that pull requests go to."""

    def issues(self, label: str | None = None) -> tuple[Thread, ...]:
        """Return the issues with a label, or all, open or not, the oldest first."""

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on an issue, the oldest first."""

    def pulls(self, branch: str) -> tuple[PullThread, ...]:
        """Return the pull requests from a branch of the repository, open or not, the newest first."""

    def trusts(self, author: str) -> bool:
        """Return whether the token belongs to an account, or the account may write to the repository."""

    def open_issue(self, title: str, body: str, labels: tuple[str, ...]) -> Thread:
        """Open an issue."""

    def edit_issue(self, number: int, title: str, body: str, state: ThreadState) -> Thread:
        """Set the title, the text and the state of an issue."""

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment on an issue."""

    def open_pull(self, branch: str, base: str, title: str, body: str) -> PullThread:
        """Open a draft from a branch of the repository."""

    def edit_pull(self, pull: PullThread, title: str, body: str, *, closed: bool) -> PullThread:
        """Set the title and the text of a pull request, and close it if so asked. A draft stays a draft."""

    def remove_label(self, number: int, label: str, *, pull: bool) -> None:
        """Take a label from an issue or a pull request; it may be gone already."""

    def runs(self, workflow: str, most: int) -> tuple[WorkflowRun, ...] | None:
        """Return the last runs of a workflow by its file's name, the newest first; None if there is no such workflow."""

    def runs_page(self, workflow: str) -> str:
        """Return the address of the page that shows the runs of a workflow."""
