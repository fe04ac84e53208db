# SPDX-License-Identifier: Apache-2.0
"""Ask a forge, with errors that a user understands, and with repetitions where they are safe and may help.

A request over the rate limit is repeated when the forge's headers allow it. A reading request is also repeated after a failure of
the network or the server. A request that creates something is never repeated: its caller first looks for the result. The token is
passed to the connection only, and is removed from messages that a server sends back.
"""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import requests

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.base.text import printable
from stack.forge import credentials
from stack.forge.connection import Connection, StatusError
from stack.forge.services import Service

PATIENCE = 900.0
"""Maximal seconds that a request waits for the rate limit in total; the user has to wait for an exhausted hourly limit."""
LEAST = 60.0
"""Seconds to wait if the forge names no time: GitHub's documentation asks for at least a minute."""

_TRIES = 3
_PAUSE = 1.0
"""Seconds before the second attempt; doubled for each further one."""
NOT_FOUND = 404
INVALID = 422
FORBIDDEN = 403
_UNKNOWN = 401
_LIMITED = (403, 429)
_BUSY = (500, 502, 503, 504)
_LONGEST = 300
_DEPTH = 4
"""Objects within objects in which remarks are looked for; GitLab has two."""
_LIMIT_ENDS = ("please wait a few minutes before you try again.", "please retry your request again later.")
"""How the message of an exceeded limit ends, if it does not name the limit."""
_ODD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions for an answer that does not have the forge's form."""

T = TypeVar("T")


class DroppedError(StackError):
    """Raised when the network fails after a request was sent, so that its result is unknown."""


class RefusedError(StackError):
    """Raised when the server refuses a request; `status` is the HTTP status."""

    def __init__(self, problem: str, remedy: str, status: int) -> None:
        super().__init__(problem, remedy)
        self.status = status


class Asker:
    """A connection to one host for one user. Without a token it can read public data."""

    def __init__(self, host: str, service: Service, tell: Progress = silent) -> None:
        """Connect to the host's API; `tell` is called with the progress of waiting.

        Raises:
            StackError: the token or the API's address cannot be used.

        """
        self.host, self.service = host, service
        self._token = credentials.token(host, service)
        self.api = Connection(service.api(host), self._token, service)
        self._tell = tell

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
            raise StackError(f"no token for {self.host}", credentials.missing(self.host, self.service))

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

    def find(self, what: str, call: Callable[[], T], none: Collection[int] = (NOT_FOUND,)) -> T | None:
        """Call the API as `ask` does; return None if the server answers with one of the statuses `none`.

        Raises:
            StackError: as `ask`.

        """
        try:
            return self.ask(what, call)
        except RefusedError as refused:
            if refused.status in none:
                return None
            raise

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
        if error.status == FORBIDDEN:
            remedy = (
                credentials.missing(self.host, self.service)
                if unset
                else f"give the token the right to write {self.service.pulls}, or log in with another"
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
        words = "; ".join(text for text in _messages(data) if text.strip())
        if self._token:
            words = words.replace(self._token, "...")
        return plain(words)[:_LONGEST]

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
        return StackError(f"{self.host} gives an invalid answer when asked {what}", f"check {self.service.api_variable}")


def plain(text: str) -> str:
    """Put foreign text on one line, without control characters."""
    return " ".join(printable(text, " ").split())


def _messages(data: object) -> Iterator[str]:
    """Yield what a forge says is wrong: `message` is a text, a list, or texts by field; GitHub lists more in `errors`."""
    if not isinstance(data, dict):
        return
    for value in (data.get("message"), data.get("error")):
        yield from _texts(value)
    errors = data.get("errors")
    for entry in errors if isinstance(errors, list) else []:
        if isinstance(entry, dict):
            said = entry.get("message") or " ".join(str(entry.get(key, "")) for key in ("field", "code"))
            yield from _texts(said)


def _texts(value: object, depth: int = _DEPTH) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (entry for entry in value if isinstance(entry, str))
    elif isinstance(value, dict) and depth:
        yield from (f"{key} {text}" for key, entries in value.items() for text in _texts(entries, depth - 1))


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
    limited = error.status != FORBIDDEN or "retry-after" in headers
    return LEAST if limited or "rate limit" in message or message.endswith(_LIMIT_ENDS) else None


def _seconds(text: str) -> float:
    """Parse a number of seconds; NaN would pass every comparison with a limit, and nothing would be waited for."""
    seconds = float(text)
    if not math.isfinite(seconds):
        raise ValueError
    return seconds
