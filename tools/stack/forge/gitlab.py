# SPDX-License-Identifier: Apache-2.0
"""Read and write the issues and merge requests of a project at GitLab."""

import re
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

SCHEDULE = "stack-watch"
"""The description of the schedule in the project's settings. GitLab has no workflows by name; a schedule stands for one."""
DRAFT = "Draft: "
_DEVELOPER = 30
"""The access level that may write to the repository."""
_COMMAND = re.compile(r"^/(?=[a-z])", re.MULTILINE | re.IGNORECASE)
"""The beginning of a line that GitLab would carry out with the token's rights, such as `/close` or `/Close`."""
_SLASH = "&#47;"
_STATES = {"opened": ThreadState.OPEN, "closed": ThreadState.CLOSED}
_ENDED = {"success": "success", "failed": "failure", "canceled": "cancelled", "skipped": "skipped"}


class GitLabThreads(OwnThreads):
    """The issues and merge requests of one project at GitLab."""

    def __init__(self, repository: Repository, tell: Progress = silent) -> None:
        """Connect to the project's host; `tell` is called with the progress of waiting.

        Raises:
            StackError: the token or the API's address cannot be used.

        """
        super().__init__(Asker(repository.host, services.GITLAB, tell), repository, f"/projects/{part(repository.shown)}")

    def issues(self, label: str | None = None) -> tuple[Thread, ...]:
        """Return the issues with a label, or all, open or not, the oldest first."""
        query = {"labels": label} if label is not None else {}

        def read() -> tuple[Thread, ...]:
            listed = self._listed("issues", state="all", order_by="created_at", sort="asc", **query)
            return tuple(_thread(entry) for entry in listed)

        return self._asker.ask(f"the issues of {self.shown}", read)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on an issue, the oldest first."""

        def read() -> tuple[Comment, ...]:
            listed = self._listed(f"issues/{number}/notes", order_by="created_at", sort="asc")
            # Notes of the system say what was changed.
            return tuple(Comment(text(entry["body"]), _author(entry)) for entry in listed if not entry["system"])

        return self._asker.ask(f"the comments on {self.shown}#{number}", read)

    def pulls(self, branch: str) -> tuple[PullThread, ...]:
        """Return the merge requests from a branch of the project, open or not, the newest first."""

        def read() -> tuple[PullThread, ...]:
            listed = self._listed("merge_requests", state="all", source_branch=branch, order_by="created_at", sort="desc")
            # A fork may have a branch of that name.
            own = (entry for entry in listed if entry["source_project_id"] == entry["target_project_id"])
            found = (_pull(entry) for entry in own if entry["source_branch"] == branch)
            return tuple(sorted(found, key=lambda pull: -pull.number))

        return self._asker.ask(f"the merge requests of {self.shown}", read)

    def open_issue(self, title: str, body: str, labels: tuple[str, ...]) -> Thread:
        """Open an issue."""
        content = {"title": title, "description": _inert(body), "labels": ",".join(labels)}
        what = f"to open an issue at {self.shown}"
        return self._asker.ask(what, lambda: _thread(self._asker.api.post(f"{self._path}/issues", content)), again=False)

    def edit_issue(self, number: int, title: str, body: str, state: ThreadState) -> Thread:
        """Set the title, the text and the state of an issue."""
        event = "close" if state is ThreadState.CLOSED else "reopen"
        content = {"title": title, "description": _inert(body), "state_event": event}
        what = f"to change {self.shown}#{number}"
        return self._asker.ask(what, lambda: _thread(self._asker.api.put(f"{self._path}/issues/{number}", content)))

    def add_comment(self, number: int, body: str) -> Comment:
        """Comment on an issue."""

        def post() -> Comment:
            self._asker.api.post(f"{self._path}/issues/{number}/notes", {"body": _inert(body)})
            return Comment(body, self.account)

        return self._asker.ask(f"to comment on {self.shown}#{number}", post, again=False)

    def open_pull(self, branch: str, base: str, title: str, body: str) -> PullThread:
        """Open a draft from a branch of the project."""
        content = {"source_branch": branch, "target_branch": base, "title": f"{DRAFT}{title}", "description": _inert(body)}
        what = f"to open a merge request at {self.shown}"
        return self._asker.ask(what, lambda: _pull(self._asker.api.post(f"{self._path}/merge_requests", content)), again=False)

    def edit_pull(self, pull: PullThread, title: str, body: str, *, closed: bool) -> PullThread:
        """Set the title and the text of a merge request, and close it if so asked."""
        draft = DRAFT if pull.state is PullState.DRAFT else ""
        content = {"title": f"{draft}{title}", "description": _inert(body)} | ({"state_event": "close"} if closed else {})
        what = f"to change {self.shown}!{pull.number}"
        return self._asker.ask(what, lambda: _pull(self._asker.api.put(f"{self._path}/merge_requests/{pull.number}", content)))

    def remove_label(self, number: int, label: str, *, pull: bool) -> None:
        """Take a label from an issue or a merge request; each kind is counted by itself."""
        path = f"{self._path}/{'merge_requests' if pull else 'issues'}/{number}"
        what = f"to take a label from {self.shown}{'!' if pull else '#'}{number}"
        self._asker.ask(what, lambda: self._asker.api.put(path, {"remove_labels": label}))

    def runs(self, workflow: str, most: int) -> tuple[WorkflowRun, ...] | None:
        """Return the last pipelines of the schedule `stack-watch`, the newest first; None if there is no such schedule."""
        del workflow

        def read() -> tuple[WorkflowRun, ...] | None:
            schedules = [count(one["id"]) for one in self._listed("pipeline_schedules") if one["description"] == SCHEDULE]
            if not schedules:
                return None
            found = [run for each in schedules for run in self._listed(f"pipeline_schedules/{each}/pipelines")]
            found.sort(key=lambda run: -count(run["id"]))  # older versions list the oldest first
            return tuple(_run(run) for run in found[:most])

        return self._asker.find(f"the scheduled pipelines of {self.shown}", read)

    def runs_page(self, workflow: str) -> str:
        """Return the address of the page that shows the schedules."""
        del workflow
        return f"https://{self._repository.host}/{self.shown}/-/pipeline_schedules"

    def _listed(self, path: str, **query: str) -> Any:
        return self._asker.api.listed(f"{self._path}/{path}", most=MOST, **query)

    def _login(self) -> str:
        return self._asker.ask("who you are", lambda: word(self._asker.api.get("/user")["username"]))

    def _may_write(self, author: str) -> bool:
        def read() -> bool:
            members = self._asker.api.listed(f"{self._path}/members/all", query=author)
            return any(text(one["username"]) == author and count(one["access_level"]) >= _DEVELOPER for one in members)

        return self._asker.find(f"the rights of {author} in {self.shown}", read, (FORBIDDEN, NOT_FOUND)) or False


def _inert(body: str) -> str:
    """Keep GitLab from carrying out lines of a text as commands."""
    return _COMMAND.sub(_SLASH, body)


def _thread(theirs: Any) -> Thread:
    return Thread(
        number=number(theirs["iid"]),
        title=text(theirs["title"]),
        body=text(theirs["description"] or ""),
        state=_STATES[theirs["state"]],
        labels=_labels(theirs),
        author=_author(theirs),
    )


def _pull(theirs: Any) -> PullThread:
    own = number(theirs["iid"])
    title, body = text(theirs["title"]).removeprefix(DRAFT), text(theirs["description"] or "")
    return PullThread(own, title, body, _state(theirs), _labels(theirs), f"merge request !{own}")


def _state(theirs: Any) -> PullState:
    match theirs["state"]:
        case "merged":
            return PullState.MERGED
        case "closed":
            return PullState.CLOSED
        case "opened" | "locked":  # it is locked while it is merged
            return PullState.DRAFT if theirs["draft"] else PullState.OPEN
    raise ValueError


def _run(theirs: Any) -> WorkflowRun:
    began = datetime.fromisoformat(text(theirs["created_at"])).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return WorkflowRun(began, _ENDED.get(text(theirs["status"]), ""), printable(text(theirs["source"])))


def _labels(theirs: Any) -> tuple[str, ...]:
    return tuple(text(label) for label in theirs["labels"])


def _author(theirs: Any) -> str:
    """Return the author; none if the account is gone."""
    return text(theirs["author"]["username"]) if theirs["author"] else ""
