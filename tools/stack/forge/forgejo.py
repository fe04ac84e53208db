# SPDX-License-Identifier: Apache-2.0
"""Read and write the issues and pull requests of a repository at a Forgejo."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from stack.base.progress import Progress, silent
from stack.base.text import printable
from stack.forge import services
from stack.forge.asking import FORBIDDEN, NOT_FOUND, Asker
from stack.forge.connection import part
from stack.forge.own_threads import OwnThreads
from stack.forge.repositories import PullState, Repository
from stack.forge.threads import MOST, Comment, PullThread, Thread, ThreadState, WorkflowRun
from stack.forge.values import count, number, text, word

DRAFT = "WIP: "
_IS_DRAFT = re.compile(r"(?:WIP:|\[WIP\]|Draft:) *", re.IGNORECASE)
_WRITERS = frozenset({"owner", "admin", "write"})
_ENDED = frozenset({"success", "failure", "cancelled", "skipped"})
_COLOUR = "#5319e7"


class ForgejoThreads(OwnThreads):
    """The issues and pull requests of one repository at a Forgejo."""

    def __init__(self, repository: Repository, tell: Progress = silent) -> None:
        """Connect to the repository's host; `tell` is called with the progress of waiting.

        Raises:
            StackError: the token or the API's address cannot be used.

        """
        path = f"/repos/{part(repository.owner)}/{part(repository.name)}"
        super().__init__(Asker(repository.host, services.FORGEJO, tell), repository, path)

    def issues(self, label: str | None = None) -> tuple[Thread, ...]:
        """Return the issues with a label, or all, open or not, the oldest first."""
        query = {"labels": label} if label is not None else {}

        def read() -> tuple[Thread, ...]:
            found = (_thread(entry) for entry in self._listed("issues", state="all", type="issues", **query))
            # A label that does not exist is passed over, and all issues are listed.
            kept = (thread for thread in found if label is None or label in thread.labels)
            return tuple(sorted(kept, key=lambda thread: thread.number))

        return self._asker.ask(f"the issues of {self.shown}", read)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on an issue, the oldest first."""

        def read() -> tuple[Comment, ...]:
            listed = self._asker.api.get(f"{self._path}/issues/{number}/comments")  # all on one page
            return tuple(Comment(text(entry["body"]), _author(entry)) for entry in listed)

        return self._asker.ask(f"the comments on {self.shown}#{number}", read)

    def pulls(self, branch: str) -> tuple[PullThread, ...]:
        """Return the pull requests from a branch of the repository, open or not, the newest first."""

        def read() -> tuple[PullThread, ...]:
            # The list cannot be limited to a branch.
            listed = self._listed("pulls", state="all", sort="recentupdate")
            own = (_pull(entry) for entry in listed if _is_from(entry, self.shown, branch))
            return tuple(sorted(own, key=lambda pull: -pull.number))

        return self._asker.ask(f"the pull requests of {self.shown}", read)

    def open_issue(self, title: str, body: str, labels: tuple[str, ...]) -> Thread:
        """Open an issue. A label that does not exist is made first."""
        numbers = [self._label(name) for name in labels]

        def post() -> Thread:
            return _thread(self._asker.api.post(f"{self._path}/issues", {"title": title, "body": body, "labels": numbers}))

        return self._asker.ask(f"to open an issue at {self.shown}", post, again=False)

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
        content = {"base": base, "head": branch, "title": f"{DRAFT}{title}", "body": body}
        what = f"to open a pull request at {self.shown}"
        return self._asker.ask(what, lambda: _pull(self._asker.api.post(f"{self._path}/pulls", content)), again=False)

    def edit_pull(self, pull: PullThread, title: str, body: str, *, closed: bool) -> PullThread:
        """Set the title and the text of a pull request, and close it if so asked."""
        draft = DRAFT if pull.state is PullState.DRAFT else ""
        content = {"title": f"{draft}{title}", "body": body} | ({"state": "closed"} if closed else {})
        what = f"to change {self.shown}#{pull.number}"
        return self._asker.ask(what, lambda: _pull(self._asker.api.patch(f"{self._path}/pulls/{pull.number}", content)))

    def remove_label(self, number: int, label: str, *, pull: bool) -> None:
        """Take a label from an issue or a pull request; both are counted together."""
        del pull
        path = f"{self._path}/issues/{number}/labels"

        def delete() -> None:
            labels = self._asker.api.get(f"{self._path}/issues/{number}")["labels"]
            for own in (count(entry["id"]) for entry in labels if entry["name"] == label):
                self._asker.api.delete(f"{path}/{own}")

        self._asker.find(f"to take a label from {self.shown}#{number}", delete)

    def runs(self, workflow: str, most: int) -> tuple[WorkflowRun, ...] | None:
        """Return the last runs of a workflow by its file's name, the newest first; None if the forge does not list them."""

        def read() -> tuple[WorkflowRun, ...]:
            listed = self._asker.api.get(f"{self._path}/actions/runs", workflow_id=workflow, limit=most)["workflow_runs"]
            own = [run for run in listed if run["workflow_id"] == workflow]
            return tuple(_run(run) for run in sorted(own, key=lambda run: -count(run["id"])))

        return self._asker.find(f"the runs of {workflow} in {self.shown}", read)

    def runs_page(self, workflow: str) -> str:
        """Return the address of the page that shows the runs of a workflow."""
        return f"https://{self._repository.host}/{self.shown}/actions?workflow={part(workflow)}"

    def _listed(self, path: str, **query: str) -> Iterator[Any]:
        return self._asker.api.listed(f"{self._path}/{path}", most=MOST, **query)

    def _label(self, name: str) -> int:
        """Return the number of a label; the API takes no names. A label that was made already is not made twice."""

        def read() -> int | None:
            return next((count(entry["id"]) for entry in self._listed("labels") if entry["name"] == name), None)

        known = self._asker.ask(f"the labels of {self.shown}", read)
        if known is not None:
            return known
        content = {"name": name, "color": _COLOUR}
        what = f"to make the label {name} at {self.shown}"
        return self._asker.ask(what, lambda: count(self._asker.api.post(f"{self._path}/labels", content)["id"]), again=False)

    def _login(self) -> str:
        return self._asker.ask("who you are", lambda: word(self._asker.api.get("/user")["login"]))

    def _may_write(self, author: str) -> bool:
        if author.lower() == self._repository.owner.lower():
            return True
        path = f"{self._path}/collaborators/{part(author)}/permission"
        what = f"the rights of {author} in {self.shown}"
        # Only an administrator of the repository may ask for the rights of others.
        return self._asker.find(what, lambda: text(self._asker.api.get(path)["permission"]), (FORBIDDEN, NOT_FOUND)) in _WRITERS


def _thread(theirs: Any) -> Thread:
    return Thread(
        number=number(theirs["number"]),
        title=text(theirs["title"]),
        body=text(theirs["body"]),
        state=ThreadState(theirs["state"]),
        labels=_labels(theirs),
        author=_author(theirs),
    )


def _pull(theirs: Any) -> PullThread:
    own = number(theirs["number"])
    title = _IS_DRAFT.sub("", text(theirs["title"]), count=1) if _IS_DRAFT.match(theirs["title"]) else text(theirs["title"])
    return PullThread(own, title, text(theirs["body"]), _state(theirs), _labels(theirs), f"pull request #{own}")


def _state(theirs: Any) -> PullState:
    if theirs["merged"]:
        return PullState.MERGED
    if theirs["state"] != "open":
        return PullState.CLOSED
    return PullState.DRAFT if _IS_DRAFT.match(text(theirs["title"])) else PullState.OPEN


def _is_from(theirs: Any, repository: str, branch: str) -> bool:
    """Return whether a pull request comes from a branch of a repository; there is none if a fork was deleted."""
    head = theirs["head"]
    repo = head["repo"]
    return repo is not None and head["ref"] == branch and text(repo["full_name"]).lower() == repository.lower()


def _run(theirs: Any) -> WorkflowRun:
    began = datetime.fromisoformat(text(theirs["created"])).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = text(theirs["status"])
    return WorkflowRun(began, status if status in _ENDED else "", printable(text(theirs["trigger_event"])))


def _labels(theirs: Any) -> tuple[str, ...]:
    return tuple(text(label["name"]) for label in theirs["labels"] or ())


def _author(theirs: Any) -> str:
    """Return the author; none if the account is gone."""
    return text(theirs["user"]["login"]) if theirs["user"] else ""
