# SPDX-License-Identifier: Apache-2.0
"""Read and write the issues and pull requests of the user's own repository, as plain values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stack.base.text import printable
from stack.forge.connection import part
from stack.forge.github import NOT_FOUND, GitHub, RefusedError, pull_from
from stack.forge.repositories import PullState, Repository

MOST = 10_000
"""Maximal number of issues that are searched for one."""
_WRITERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})


class ThreadState(StrEnum):
    """The state of an issue."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Thread:
    """An issue. `trusted`: its author may write to the repository, or is a program that its owner installed."""

    number: int
    title: str
    body: str
    state: ThreadState
    labels: tuple[str, ...] = ()
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on an issue; `trusted` as in `Thread`."""

    body: str
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class PullThread:
    """A pull request from a branch of the repository itself."""

    number: int
    title: str
    body: str
    state: PullState
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkflowRun:
    """A run of a workflow. `conclusion` is empty until it has ended; `began` is ISO 8601 in UTC."""

    began: str
    conclusion: str
    event: str


class Threads:
    """The issues and pull requests of one repository at GitHub. Every method raises a StackError if GitHub cannot be asked."""

    def __init__(self, github: GitHub, repository: Repository) -> None:
        self._github = github
        self._repository = repository
        self._path = f"/repos/{part(repository.owner)}/{part(repository.name)}"

    @property
    def shown(self) -> str:
        """The repository's name."""
        return self._repository.shown

    def default_branch(self) -> str:
        """Return the branch that pull requests go to."""
        return self._github.default_branch(self._repository)

    def issues(self, label: str | None = None) -> tuple[Thread, ...]:
        """Return the issues with a label, or all, open or not, the oldest first."""
        query = {"labels": label} if label is not None else {}

        def read() -> tuple[Thread, ...]:
            listed = self._github.api.listed(
                f"{self._path}/issues", most=MOST, state="all", sort="created", direction="asc", **query
            )
            return tuple(_thread(entry) for entry in listed if "pull_request" not in entry)

        return self._github.ask(f"the issues of {self.shown}", read)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on an issue, the oldest first."""

        def read() -> tuple[Comment, ...]:
            listed = self._github.api.listed(f"{self._path}/issues/{number}/comments", most=MOST)
            return tuple(Comment(_body(entry), _trusted(entry)) for entry in listed)

        return self._github.ask(f"the comments on {self.shown}#{number}", read)

    def pulls(self, branch: str) -> tuple[PullThread, ...]:
        """Return the pull requests from a branch of the repository, open or not, the newest first."""
        head = f"{self._repository.owner}:{branch}"

        def read() -> tuple[PullThread, ...]:
            listed = self._github.api.listed(f"{self._path}/pulls", state="all", head=head)
            # An organization may also have a fork of its repository, with a branch of that name.
            own = (entry for entry in listed if pull_from(entry).head.lower() == head.lower() and _is_from(entry, self.shown))
            return tuple(sorted((_pull_thread(entry) for entry in own), key=lambda pull: -pull.number))

        return self._github.ask(f"the pull requests of {self.shown}", read)

    def open_issue(self, title: str, body: str, labels: tuple[str, ...]) -> Thread:
        """Open an issue. The request is not repeated if its answer is lost."""
        content = {"title": title, "body": body, "labels": list(labels)}
        return self._github.ask(
            f"to open an issue at {self.shown}",
            lambda: _thread(self._github.api.post(f"{self._path}/issues", content)),
            again=False,
        )

    def edit_issue(self, number: int, title: str, body: str, state: ThreadState) -> Thread:
        """Set the title, the text and the state of an issue."""
        content = {"title": title, "body": body, "state": state.value}
        what = f"to change {self.shown}#{number}"
        return self._github.ask(what, lambda: _thread(self._github.api.patch(f"{self._path}/issues/{number}", content)))

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment on an issue. The request is not repeated if its answer is lost."""

        def post() -> Comment:
            self._github.api.post(f"{self._path}/issues/{number}/comments", {"body": body})
            return Comment(body)

        return self._github.ask(f"to comment on {self.shown}#{number}", post, again=False)

    def open_pull(self, branch: str, base: str, title: str, body: str) -> PullThread:
        """Open a draft from a branch of the repository. The request is not repeated if its answer is lost."""
        content = {"base": base, "head": f"{self._repository.owner}:{branch}", "title": title, "body": body, "draft": True}
        what = f"to open a pull request at {self.shown}"
        return self._github.ask(what, lambda: _pull_thread(self._github.api.post(f"{self._path}/pulls", content)), again=False)

    def edit_pull(self, number: int, title: str, body: str, *, closed: bool) -> PullThread:
        """Set the title and the text of a pull request, and close it if so asked."""
        content = {"title": title, "body": body} | ({"state": "closed"} if closed else {})
        what = f"to change {self.shown}#{number}"
        return self._github.ask(what, lambda: _pull_thread(self._github.api.patch(f"{self._path}/pulls/{number}", content)))

    def remove_label(self, number: int, label: str) -> None:
        """Take a label from an issue or a pull request; it may be gone already."""
        path = f"{self._path}/issues/{number}/labels/{part(label)}"
        try:
            self._github.ask(f"to take a label from {self.shown}#{number}", lambda: self._github.api.delete(path))
        except RefusedError as refused:
            if refused.status != NOT_FOUND:
                raise

    def runs(self, workflow: str, most: int) -> tuple[WorkflowRun, ...] | None:
        """Return the last runs of a workflow by its file's name, the newest first; None if there is no such workflow."""
        path = f"{self._path}/actions/workflows/{part(workflow)}/runs"

        def read() -> tuple[WorkflowRun, ...]:
            listed = self._github.api.get(path, per_page=most)["workflow_runs"]
            return tuple(_run(run) for run in listed)

        try:
            return self._github.ask(f"the runs of {workflow} in {self.shown}", read)
        except RefusedError as refused:
            if refused.status == NOT_FOUND:
                return None
            raise


def _thread(theirs: Any) -> Thread:
    return Thread(
        number=_number(theirs["number"]),
        title=_text(theirs["title"]),
        body=_body(theirs),
        state=ThreadState(theirs["state"]),
        labels=_labels(theirs),
        trusted=_trusted(theirs),
    )


def _pull_thread(theirs: Any) -> PullThread:
    pull = pull_from(theirs)
    return PullThread(pull.number, _text(theirs["title"]), _body(theirs), pull.state, _labels(theirs))


def _run(theirs: Any) -> WorkflowRun:
    values = (theirs["created_at"], theirs["conclusion"] or "", theirs["event"])
    return WorkflowRun(*(printable(_text(value)) for value in values))


def _is_from(theirs: Any, repository: str) -> bool:
    """Return whether a pull request comes from a branch of a repository; there is none if a fork was deleted."""
    repo = theirs["head"]["repo"]
    return repo is not None and _text(repo["full_name"]).lower() == repository.lower()


def _body(theirs: Any) -> str:
    return _text(theirs.get("body") or "")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError
    return value


def _labels(theirs: Any) -> tuple[str, ...]:
    return tuple(label if isinstance(label, str) else _text(label["name"]) for label in theirs["labels"])


def _trusted(theirs: Any) -> bool:
    """Return whether an author may write to the repository, or is a program: others could take the marks over."""
    user = theirs["user"] or {}
    return theirs["author_association"] in _WRITERS or user.get("type") == "Bot"
