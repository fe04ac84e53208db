# SPDX-License-Identifier: Apache-2.0
"""Query GitHub's API, with plain values as results and errors that a user understands.

A request over the rate limit is repeated when GitHub's headers allow it. A reading request is also repeated after a failure of
the network or the server. The request that opens a pull request is never repeated: its caller first looks for the result. The
token is passed to the client only, and is removed from messages that a server sends back.
"""

from datetime import UTC, datetime
from typing import Any

from stack.base.progress import Progress, silent
from stack.forge import services
from stack.forge.asking import FORBIDDEN, INVALID, NOT_FOUND, Asker, DroppedError, RefusedError, plain
from stack.forge.connection import Connection, part
from stack.forge.repositories import Checks, Fork, Hit, Pull, PullState, Repository, Reviews
from stack.forge.values import address, count, filled, word
from stack.model.ids import CommitId

__all__ = ["FORBIDDEN", "INVALID", "NOT_FOUND", "DroppedError", "GitHub", "RefusedError", "pull_from"]

VIEWER = "query { viewer { login } }"
"""Asks GitHub's GraphQL API for the account of the token."""
_TOO_LARGE = 406
_DIFF = "application/vnd.github.diff"
_HAS_WORD = frozenset({"APPROVED", "CHANGES_REQUESTED", "DISMISSED"})
_GOOD = frozenset({"success", "neutral", "skipped"})


class GitHub(Asker):
    """A client for one host and one user. Without a token it can read public data, sixty requests an hour."""

    def __init__(self, host: str, tell: Progress = silent) -> None:
        """Connect to the host's API; `tell` is called with the progress of waiting.

        Raises:
            StackError: the token or the API's address cannot be used.

        """
        super().__init__(host, services.GITHUB, tell)
        self._login: str | None = None

    def login(self) -> str:
        """Return the login of the token's owner.

        Raises:
            StackError: there is no token, or it is refused.

        """
        self.require_token()
        if self._login is None:
            self._login = self.ask("who you are", lambda: word(self.api.get("/user")["login"]))
        return self._login

    def account(self) -> str:
        """Return the account that the token belongs to, also if that is a program, such as `github-actions[bot]`.

        Raises:
            StackError: there is no token, or it is refused.

        """
        try:
            return self.login()
        except RefusedError as refused:
            if refused.status != FORBIDDEN:
                raise
        # GitHub's REST API tells a program nothing about itself; its GraphQL API does.
        return self.ask("who you are", self._viewer)

    def _viewer(self) -> str:
        own = self.service.api(self.host)
        connection = Connection(own.removesuffix("/v3"), self._token, self.service)
        try:
            return word(connection.post("/graphql", {"query": VIEWER})["data"]["viewer"]["login"])
        finally:
            connection.close()

    def default_branch(self, repository: Repository) -> str:
        """Return the branch that pull requests go to.

        Raises:
            StackError: the repository cannot be read.

        """
        return self.ask(repository.shown, lambda: word(self.api.get(_path(repository))["default_branch"]))

    def fork(self, repository: Repository) -> Fork:
        """Return a repository, and the one that it was forked from.

        Raises:
            StackError: it cannot be read.

        """

        def read() -> Fork:
            theirs = self.api.get(_path(repository))
            parent = (theirs.get("source") or theirs.get("parent")) if theirs["fork"] else None
            # Use GitHub's spelling of the name: names differing in case are the same repository.
            owner, _, name = word(theirs["full_name"]).partition("/")
            return Fork(Repository(self.host, owner, name), word(parent["full_name"]) if parent else None)

        return self.ask(repository.shown, read)

    def tip(self, repository: Repository, branch: str) -> CommitId | None:
        """Return the commit of a branch; None if there is no such branch.

        Raises:
            StackError: the repository cannot be read.

        """
        ref = f"refs/heads/{branch}"

        def read() -> CommitId | None:
            listed = self.api.get(f"{_path(repository)}/git/matching-refs/{part(f'heads/{branch}')}")
            return next((CommitId(word(entry["object"]["sha"])) for entry in listed if entry["ref"] == ref), None)

        return self.ask(f"the branches of {repository.shown}", read)

    def search(self, query: str, most: int) -> tuple[tuple[Hit, ...], int]:
        """Search pull requests: return at most `most` results (up to 100), the best first, and the total number.

        Raises:
            StackError: the search failed.

        """

        def read() -> tuple[tuple[Hit, ...], int]:
            found = self.api.get("/search/issues", q=query, per_page=most)
            return tuple(map(_hit, found["items"])), count(found["total_count"])

        return self.ask("the search", read)

    def pull(self, repository: Repository, number: int) -> Pull:
        """Return a pull request.

        Raises:
            StackError: it cannot be read.

        """
        return self.ask(f"{repository.shown}#{number}", lambda: pull_from(self.api.get(f"{_path(repository)}/pulls/{number}")))

    def pulls_from(self, repository: Repository, head: str) -> tuple[Pull, ...]:
        """Return all pull requests from a head `owner:branch`, open or not, the newest first.

        Raises:
            StackError: they cannot be read.

        """

        def read() -> tuple[Pull, ...]:
            listed = self.api.listed(f"{_path(repository)}/pulls", state="all", head=head)
            # A server that ignores the filter returns all pull requests.
            return tuple(pull for pull in map(pull_from, listed) if pull.head.lower() == head.lower())

        return tuple(sorted(self.ask(f"the pull requests of {repository.shown}", read), key=lambda pull: -pull.number))

    def diff(self, repository: Repository, number: int) -> bytes | None:
        """Return a pull request's diff as git writes it; None if GitHub finds it too large.

        Raises:
            StackError: it cannot be read.

        """

        def read() -> bytes:
            return self.api.bytes_of(f"{_path(repository)}/pulls/{number}", _DIFF)

        try:
            return self.ask(f"the diff of {repository.shown}#{number}", read)
        except RefusedError as refused:
            if refused.status in (_TOO_LARGE, INVALID):
                return None
            raise

    def open_draft(self, repository: Repository, *, head: str, base: str, title: str, body: str) -> Pull:
        """Open a draft from `head` (`owner:branch`) that upstream's maintainers may edit.

        Raises:
            DroppedError: the answer was lost, so the draft may be open.
            RefusedError: GitHub refuses to open it.
            StackError: GitHub could not be asked.

        """

        def post() -> Pull:
            content = {"base": base, "head": head, "title": title, "body": body, "draft": True, "maintainer_can_modify": True}
            return pull_from(self.api.post(f"{_path(repository)}/pulls", content))

        return self.ask(f"to open a pull request at {repository.shown}", post, again=False)

    def reviews(self, repository: Repository, number: int) -> Reviews:
        """Return the latest verdict of each reviewer.

        Raises:
            StackError: it cannot be read.

        """

        def read() -> Reviews:
            verdicts: dict[str, str] = {}
            for review in self.api.listed(f"{_path(repository)}/pulls/{number}/reviews"):
                if review["state"] in _HAS_WORD:  # a comment does not change the reviewer's verdict
                    verdicts[_login(review)] = review["state"]
            logins = {state: tuple(login for login, verdict in verdicts.items() if verdict == state) for state in _HAS_WORD}
            return Reviews(logins["APPROVED"], logins["CHANGES_REQUESTED"])

        return self.ask(f"the reviews of {repository.shown}#{number}", read)

    def checks(self, repository: Repository, commit: CommitId) -> Checks:
        """Return the results of a commit's checks, both GitHub Apps' check runs and commit statuses.

        Raises:
            StackError: they cannot be read.

        """

        def read() -> Checks:
            path = f"{_path(repository)}/commits/{part(commit)}"
            ended = {
                filled(check["name"]): filled(check["conclusion"]) if check["conclusion"] else ""
                for check in self.api.listed(f"{path}/check-runs", "check_runs", filter="latest")
            }
            for check in self.api.get(f"{path}/status")["statuses"]:
                ended[filled(check["context"])] = "" if check["state"] == "pending" else filled(check["state"])
            return Checks(
                passed=sum(result in _GOOD for result in ended.values()),
                failed=tuple(sorted(name for name, result in ended.items() if result and result not in _GOOD)),
                pending=sum(not result for result in ended.values()),
            )

        return self.ask(f"the checks of {commit[:12]} in {repository.shown}", read)

    def behind(self, repository: Repository, base: str, commit: CommitId) -> int:
        """Count the commits of `base` that a commit lacks.

        Raises:
            StackError: they cannot be compared.

        """

        def read() -> int:
            path = f"{_path(repository)}/compare/{part(base)}...{part(commit)}"
            return count(self.api.get(path, per_page=1)["behind_by"])

        return self.ask(f"how far {commit[:12]} is behind {repository.shown}", read)


def _path(repository: Repository) -> str:
    return f"/repos/{part(repository.owner)}/{part(repository.name)}"


def _login(theirs: Any) -> str:
    """Return the author of a pull request or a review; GitHub shows a deleted user as "ghost"."""
    return word(theirs["user"]["login"]) if theirs["user"] else "ghost"


def _hit(theirs: Any) -> Hit:
    return Hit(count(theirs["number"]), address(theirs["html_url"]), plain(filled(theirs["title"])), _login(theirs))


def pull_from(theirs: Any) -> Pull:
    """Convert GitHub's JSON of a pull request into a plain value.

    Raises:
        LookupError, TypeError, ValueError: a field is missing or invalid.

    """
    merged = datetime.fromisoformat(filled(theirs["merged_at"])) if theirs["merged_at"] else None
    state = PullState.MERGED if merged else PullState.CLOSED if theirs["state"] != "open" else None
    head = theirs["head"]
    return Pull(
        number=count(theirs["number"]),
        address=address(theirs["html_url"]),
        title=plain(filled(theirs["title"])),
        state=state or (PullState.DRAFT if theirs.get("draft") else PullState.OPEN),
        author=_login(theirs),
        head=plain(filled(head["label"] or head["ref"])),
        commit=CommitId(word(head["sha"])),
        base=word(theirs["base"]["ref"]),
        merge=CommitId(word(theirs["merge_commit_sha"])) if merged else None,
        merged=merged.astimezone(UTC).isoformat(timespec="seconds") if merged else None,
    )
