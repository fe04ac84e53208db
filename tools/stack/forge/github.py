# SPDX-License-Identifier: Apache-2.0
"""Query GitHub's API, with plain values as results and errors that a user understands.

A request over the rate limit is repeated when GitHub's headers allow it. A reading request is also repeated after a failure of
the network or the server. The request that opens a pull request is never repeated: its caller first looks for the result. The
token is passed to the client only, and is removed from messages that a server sends back.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import requests

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.base.text import printable
from stack.forge import credentials, repositories
from stack.forge.connection import Connection, StatusError, part
from stack.forge.repositories import Checks, Fork, Hit, Pull, PullState, Repository, Reviews
from stack.model.ids import CommitId

PATIENCE = 900.0
"""Maximal seconds that a request waits for the rate limit in total; the user has to wait for an exhausted hourly limit."""
LEAST = 60.0
"""Seconds to wait if GitHub names no time: its documentation asks for at least a minute."""

_TRIES = 3
_PAUSE = 1.0
"""Seconds before the second attempt; doubled for each further one."""
NOT_FOUND = 404
INVALID = 422
_UNKNOWN = 401
_FORBIDDEN = 403
_LIMITED = (403, 429)
_BUSY = (500, 502, 503, 504)
_TOO_LARGE = 406
_LONGEST = 300
_DIFF = "application/vnd.github.diff"
_HAS_WORD = frozenset({"APPROVED", "CHANGES_REQUESTED", "DISMISSED"})
_GOOD = frozenset({"success", "neutral", "skipped"})
_LIMIT_ENDS = ("please wait a few minutes before you try again.", "please retry your request again later.")
"""How the message of an exceeded limit ends, if it does not name the limit."""
_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions for an answer that does not have GitHub's form."""

T = TypeVar("T")


class DroppedError(StackError):
    """Raised when the network fails after a request was sent, so that its result is unknown."""


class RefusedError(StackError):
    """Raised when the server refuses a request; `status` is the HTTP status."""

    def __init__(self, problem: str, remedy: str, status: int) -> None:
        super().__init__(problem, remedy)
        self.status = status


class GitHub:
    """A client for one host and one user. Without a token it can read public data, sixty requests an hour."""

    def __init__(self, host: str, tell: Progress = silent) -> None:
        """Connect to the host's API; `tell` is called with the progress of waiting.

        Raises:
            StackError: the token or the API's address cannot be used.

        """
        self.host = host
        self._token = credentials.token(host)
        self.api = Connection(repositories.api(host), self._token)
        self._tell = tell
        self._login: str | None = None

    def close(self) -> None:
        """Close the connection."""
        self.api.close()

    @property
    def has_token(self) -> bool:
        """Return whether requests are made with a token."""
        return self._token is not None

    def require_token(self) -> None:
        """Refuse to go on without a token.

        Raises:
            StackError: there is no token.

        """
        if self._token is None:
            raise StackError(f"no token for {self.host}", credentials.missing(self.host))

    def login(self) -> str:
        """Return the login of the token's owner.

        Raises:
            StackError: there is no token, or it is refused.

        """
        self.require_token()
        if self._login is None:
            self._login = self.ask("who you are", lambda: _word(self.api.get("/user")["login"]))
        return self._login

    def default_branch(self, repository: Repository) -> str:
        """Return the branch that pull requests go to.

        Raises:
            StackError: the repository cannot be read.

        """
        return self.ask(repository.shown, lambda: _word(self.api.get(_path(repository))["default_branch"]))

    def fork(self, repository: Repository) -> Fork:
        """Return a repository, and the one that it was forked from.

        Raises:
            StackError: it cannot be read.

        """

        def read() -> Fork:
            theirs = self.api.get(_path(repository))
            parent = (theirs.get("source") or theirs.get("parent")) if theirs["fork"] else None
            # Use GitHub's spelling of the name: names differing in case are the same repository.
            owner, _, name = _word(theirs["full_name"]).partition("/")
            return Fork(Repository(self.host, owner, name), _word(parent["full_name"]) if parent else None)

        return self.ask(repository.shown, read)

    def tip(self, repository: Repository, branch: str) -> CommitId | None:
        """Return the commit of a branch; None if there is no such branch.

        Raises:
            StackError: the repository cannot be read.

        """
        ref = f"refs/heads/{branch}"

        def read() -> CommitId | None:
            listed = self.api.get(f"{_path(repository)}/git/matching-refs/{part(f'heads/{branch}')}")
            return next((CommitId(_word(entry["object"]["sha"])) for entry in listed if entry["ref"] == ref), None)

        return self.ask(f"the branches of {repository.shown}", read)

    def search(self, query: str, most: int) -> tuple[tuple[Hit, ...], int]:
        """Search pull requests: return at most `most` results (up to 100), the best first, and the total number.

        Raises:
            StackError: the search failed.

        """

        def read() -> tuple[tuple[Hit, ...], int]:
            found = self.api.get("/search/issues", q=query, per_page=most)
            return tuple(map(_hit, found["items"])), _number(found["total_count"])

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
                _text(check["name"]): _text(check["conclusion"]) if check["conclusion"] else ""
                for check in self.api.listed(f"{path}/check-runs", "check_runs", filter="latest")
            }
            for check in self.api.get(f"{path}/status")["statuses"]:
                ended[_text(check["context"])] = "" if check["state"] == "pending" else _text(check["state"])
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
            return _number(self.api.get(path, per_page=1)["behind_by"])

        return self.ask(f"how far {commit[:12]} is behind {repository.shown}", read)

    def ask(self, what: str, call: Callable[[], T], *, again: bool = True) -> T:
        """Call the API, repeating the call if that is safe and may help.

        Args:
            what: what is asked for, as errors name it.
            call: makes the requests with `api`.
            again: allow a repetition after a failure that leaves the result unknown.

        Raises:
            DroppedError: the network failed, and a repetition is not allowed.
            RefusedError: the server refuses the request.
            StackError: there is no valid answer.

        """
        waited = 0.0
        for attempt in itertools.count(1):
            try:
                return call()
            except StatusError as error:
                pause = _pause(error)
                if pause is None and again and error.status in _BUSY and attempt < _TRIES:
                    pause = _PAUSE * 2 ** (attempt - 1)
                if pause is None:
                    # Drop the cause: it contains everything the server sent.
                    raise self._refused(what, error) from None
                waited += pause
                if waited > PATIENCE:
                    raise self._over(what, pause) from None
                self._wait(pause)
            except requests.RequestException as error:
                if not again:
                    raise DroppedError(*self._unreachable(what, error)) from None
                if attempt >= _TRIES or isinstance(error, requests.exceptions.SSLError):
                    raise StackError(*self._unreachable(what, error)) from None
                time.sleep(_PAUSE * 2 ** (attempt - 1))
            except _ODD:
                raise self._odd(what) from None
        raise AssertionError

    def _wait(self, seconds: float) -> None:
        """Wait, and report the progress."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._tell(f"waiting for {self.host}'s limit of requests", int(seconds - left), int(seconds) or 1)
            time.sleep(min(left, 1.0))

    def _refused(self, what: str, error: StatusError) -> RefusedError:
        cause = self._said(error.content)
        words = f" ({cause})" if cause else ""
        unset = self._token is None
        if error.status == _UNKNOWN:
            return RefusedError(
                f"{self.host} refuses the token", "it has expired, or belongs to another host: log in again", error.status
            )
        if error.status == _FORBIDDEN:
            remedy = (
                credentials.missing(self.host)
                if unset
                else "give the token the right to write pull requests, or log in with another"
            )
            return RefusedError(f"{self.host} does not let you ask {what}{words}", remedy, error.status)
        if error.status == NOT_FOUND:
            remedy = "check the name" if unset else "check the name, and whether the token may see it"
            return RefusedError(f"{self.host} knows no {what}{words}", remedy, error.status)
        if error.status in _BUSY:
            return RefusedError(
                f"{self.host} fails ({error.status}) when asked {what}", "run the command again later", error.status
            )
        return RefusedError(f"{self.host} refuses {what} ({error.status}){words}", "correct what it names", error.status)

    def _said(self, data: object) -> str:
        """Return the message in an answer, with its remarks on single fields, and without the token."""
        if not isinstance(data, dict):
            return ""
        messages = [data.get("message")]
        errors = data.get("errors")
        for entry in errors if isinstance(errors, list) else []:
            messages += (
                [entry.get("message") or " ".join(str(entry.get(key, "")) for key in ("field", "code"))]
                if isinstance(entry, dict)
                else []
            )
        words = "; ".join(text for text in messages if isinstance(text, str) and text.strip())
        if self._token:
            words = words.replace(self._token, "...")
        return _plain(words)[:_LONGEST]

    def _over(self, what: str, pause: float) -> StackError:
        free = datetime.fromtimestamp(time.time() + min(pause, 10 * 365 * 86400), UTC)
        return StackError(f"{self.host} takes no more requests for now ({what})", f"run the command again at {free:%H:%M} UTC")

    def _unreachable(self, what: str, error: requests.RequestException) -> tuple[str, str]:
        remedy = "check the network"
        if isinstance(error, requests.exceptions.SSLError):
            return f"the certificate of {self.host} is not trusted", "check REQUESTS_CA_BUNDLE"
        if isinstance(error, requests.exceptions.ConnectTimeout | requests.exceptions.ReadTimeout):
            return f"{self.host} did not answer in time when asked {what}", remedy
        return f"the connection to {self.host} failed when asked {what}", remedy

    def _odd(self, what: str) -> StackError:
        return StackError(f"{self.host} gives an invalid answer when asked {what}", f"check {repositories.API}")


def _pause(error: StatusError) -> float | None:
    """Return the seconds to wait before repeating a rate-limited request; None if it was refused for another reason."""
    if error.status not in _LIMITED:
        return None
    headers = error.headers
    with contextlib.suppress(ValueError):
        if "retry-after" in headers:
            return max(_seconds(headers["retry-after"]), 1.0)
        if headers.get("x-ratelimit-remaining") == "0":
            # One second more, because the limit is reset within that second.
            return max(_seconds(headers["x-ratelimit-reset"]) - time.time() + 1, 1.0)
    message = str(error.content.get("message")).lower() if isinstance(error.content, dict) else ""
    limited = error.status != _FORBIDDEN or "retry-after" in headers
    return LEAST if limited or "rate limit" in message or message.endswith(_LIMIT_ENDS) else None


def _seconds(text: str) -> float:
    """Parse a number of seconds; NaN would pass every comparison with a limit, and nothing would be waited for."""
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def _path(repository: Repository) -> str:
    return f"/repos/{part(repository.owner)}/{part(repository.name)}"


def _login(theirs: Any) -> str:
    """Return the author of a pull request or a review; GitHub shows a deleted user as "ghost"."""
    return _word(theirs["user"]["login"]) if theirs["user"] else "ghost"


def _hit(theirs: Any) -> Hit:
    return Hit(_number(theirs["number"]), _address(theirs["html_url"]), _plain(_text(theirs["title"])), _login(theirs))


def pull_from(theirs: Any) -> Pull:
    """Convert GitHub's JSON of a pull request into a plain value.

    Raises:
        LookupError, TypeError, ValueError: a field is missing or invalid.

    """
    merged = datetime.fromisoformat(_text(theirs["merged_at"])) if theirs["merged_at"] else None
    state = PullState.MERGED if merged else PullState.CLOSED if theirs["state"] != "open" else None
    head = theirs["head"]
    return Pull(
        number=_number(theirs["number"]),
        address=_address(theirs["html_url"]),
        title=_plain(_text(theirs["title"])),
        state=state or (PullState.DRAFT if theirs.get("draft") else PullState.OPEN),
        author=_login(theirs),
        head=_plain(_text(head["label"] or head["ref"])),
        commit=CommitId(_word(head["sha"])),
        base=_word(theirs["base"]["ref"]),
        merge=CommitId(_word(theirs["merge_commit_sha"])) if merged else None,
        merged=merged.astimezone(UTC).isoformat(timespec="seconds") if merged else None,
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError
    return value


def _word(value: object) -> str:
    """Return a name, branch or commit that is printable and without blanks."""
    text = _text(value)
    if not text.isprintable() or " " in text:
        raise ValueError
    return text


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def _address(value: object) -> str:
    """Return an address that is safe to write into `series.toml` and to open in a browser."""
    text = _word(value)
    if not text.startswith(("https://", "http://")):
        raise ValueError
    return text


def _plain(text: str) -> str:
    """Put foreign text on one line, without control characters."""
    return " ".join(printable(text, " ").split())
