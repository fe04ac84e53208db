# SPDX-License-Identifier: Apache-2.0
"""Read and write the issues and pull requests of a repository at GitHub."""

from typing import Any

from stack.base.text import printable
from stack.forge.asking import FORBIDDEN, NOT_FOUND
from stack.forge.connection import part
from stack.forge.github import GitHub, pull_from
from stack.forge.own_threads import OwnThreads
from stack.forge.repositories import Repository
from stack.forge.threads import MOST, Comment, PullThread, Thread, ThreadState, WorkflowRun
from stack.forge.values import number as numbered
from stack.forge.values import text

_WRITERS = frozenset({"admin", "write"})


class GitHubThreads(OwnThreads):
    """The issues and pull requests of one repository at GitHub."""

    def __init__(self, github: GitHub, repository: Repository) -> None:
        super().__init__(github, repository, f"/repos/{part(repository.owner)}/{part(repository.name)}")
        self._github = github

    def issues(self, label: str | None = None) -> tuple[Thread, ...]:
        """Return the issues with a label, or all, open or not, the oldest first."""
        query = {"labels": label} if label is not None else {}

        def read() -> tuple[Thread, ...]:
            listed = self._asker.api.listed(
                f"{self._path}/issues", most=MOST, state="all", sort="created", direction="asc", **query
            )
            return tuple(_thread(entry) for entry in listed if "pull_request" not in entry)

        return self._asker.ask(f"the issues of {self.shown}", read)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on an issue, the oldest first."""

        def read() -> tuple[Comment, ...]:
            listed = self._asker.api.listed(f"{self._path}/issues/{number}/comments", most=MOST)
            return tuple(Comment(_body(entry), _author(entry)) for entry in listed)

        return self._asker.ask(f"the comments on {self.shown}#{number}", read)

    def pulls(self, branch: str) -> tuple[PullThread, ...]:
        """Return the pull requests from a branch of the repository, open or not, the newest first."""
        head = f"{self._repository.owner}:{branch}"

        def read() -> tuple[PullThread, ...]:
            listed = self._asker.api.listed(f"{self._path}/pulls", state="all", head=head)
            # An organization may also have a fork of its repository, with a branch of that name.
            own = (entry for entry in listed if pull_from(entry).head.lower() == head.lower() and _is_from(entry, self.shown))
            return tuple(sorted((_pull_thread(entry) for entry in own), key=lambda pull: -pull.number))

        return self._asker.ask(f"the pull requests of {self.shown}", read)

    def open_issue(self, title: str, body: str, labels: tuple[str, ...]) -> Thread:
        """Open an issue."""
        content = {"title": title, "body": body, "labels": list(labels)}
        return self._asker.ask(
            f"to open an issue at {self.shown}",
            lambda: _thread(self._asker.api.post(f"{self._path}/issues", content)),
            again=False,
        )

    def edit_issue(self, number: int, title: str, body: str, state: ThreadState) -> Thread:
        """Set the title, the text and the state of an issue."""
        content = {"title": title, "body": body, "state": state.value}
        what = f"to change {self.shown}#{number}"
        return self._asker.ask(what, lambda: _thread(self._asker.api.patch(f"{self._path}/issues/{number}", content)))

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment on an issue."""

        def post() -> Comment:
            self._asker.api.post(f"{self._path}/issues/{number}/comments", {"body": body})
            return Comment(body, self.account)

        return self._asker.ask(f"to comment on {self.shown}#{number}", post, again=False)

    def open_pull(self, branch: str, base: str, title: str, body: str) -> PullThread:
        """Open a draft from a branch of the repository."""
        content = {"base": base, "head": f"{self._repository.owner}:{branch}", "title": title, "body": body, "draft": True}
        what = f"to open a pull request at {self.shown}"
        return self._asker.ask(what, lambda: _pull_thread(self._asker.api.post(f"{self._path}/pulls", content)), again=False)

    def edit_pull(self, pull: PullThread, title: str, body: str, *, closed: bool) -> PullThread:
        """Set the title and the text of a pull request, and close it if so asked."""
        content = {"title": title, "body": body} | ({"state": "closed"} if closed else {})
        what = f"to change {self.shown}#{pull.number}"
        path = f"{self._path}/pulls/{pull.number}"
        return self._asker.ask(what, lambda: _pull_thread(self._asker.api.patch(path, content)))

    def remove_label(self, number: int, label: str, *, pull: bool) -> None:
        """Take a label from an issue or a pull request; both are counted together."""
        del pull
        path = f"{self._path}/issues/{number}/labels/{part(label)}"
        self._asker.find(f"to take a label from {self.shown}#{number}", lambda: self._asker.api.delete(path))

    def runs(self, workflow: str, most: int) -> tuple[WorkflowRun, ...] | None:
        """Return the last runs of a workflow by its file's name, the newest first; None if there is no such workflow."""
        path = f"{self._path}/actions/workflows/{part(workflow)}/runs"

        def read() -> tuple[WorkflowRun, ...]:
            listed = self._asker.api.get(path, per_page=most)["workflow_runs"]
            return tuple(_run(run) for run in listed)

        return self._asker.find(f"the runs of {workflow} in {self.shown}", read)

    def runs_page(self, workflow: str) -> str:
        """Return the address of the page that shows the runs of a workflow."""
        return f"https://{self._repository.host}/{self.shown}/actions/workflows/{part(workflow)}"

    def _login(self) -> str:
        return self._github.account()

    def _may_write(self, author: str) -> bool:
        path = f"{self._path}/collaborators/{part(author)}/permission"
        what = f"the rights of {author} in {self.shown}"
        # An app is no collaborator.
        found = self._asker.find(what, lambda: text(self._asker.api.get(path)["permission"]), (FORBIDDEN, NOT_FOUND))
        return found in _WRITERS


def _thread(theirs: Any) -> Thread:
    return Thread(
        number=numbered(theirs["number"]),
        title=text(theirs["title"]),
        body=_body(theirs),
        state=ThreadState(theirs["state"]),
        labels=_labels(theirs),
        author=_author(theirs),
    )


def _pull_thread(theirs: Any) -> PullThread:
    pull = pull_from(theirs)
    shown = f"pull request #{pull.number}"
    return PullThread(pull.number, text(theirs["title"]), _body(theirs), pull.state, _labels(theirs), shown)


def _run(theirs: Any) -> WorkflowRun:
    values = (theirs["created_at"], theirs["conclusion"] or "", theirs["event"])
    return WorkflowRun(*(printable(text(value)) for value in values))


def _is_from(theirs: Any, repository: str) -> bool:
    """Return whether a pull request comes from a branch of a repository; there is none if a fork was deleted."""
    repo = theirs["head"]["repo"]
    return repo is not None and text(repo["full_name"]).lower() == repository.lower()


def _body(theirs: Any) -> str:
    return text(theirs.get("body") or "")


def _labels(theirs: Any) -> tuple[str, ...]:
    return tuple(label if isinstance(label, str) else text(label["name"]) for label in theirs["labels"])


def _author(theirs: Any) -> str:
    """Return the author; GitHub has none for an account that was deleted."""
    return text(theirs["user"]["login"]) if theirs["user"] else ""
