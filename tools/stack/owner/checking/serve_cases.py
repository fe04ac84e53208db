# SPDX-License-Identifier: Apache-2.0
"""Run the cases of the serve suite that hold for any running gpt-oss, and need neither a restart nor a certain date."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from stack.base.progress import Progress
from stack.deploy import recipes
from stack.model.verdict import Case, Outcome
from stack.owner.checking.harmony_tokens import Encode
from stack.validation.serve import checks, dates, prompts
from stack.validation.serve.checks import ServerUnderTest
from stack.validation.serve.client import Talk, Wrong

SUITE = "serve/running"
"""Their own names: they ask less than a run of the whole suite, so they never count for it."""
REQUESTS = 24
"""Requests at once; the suite sends 200, for which a server of two requests at once takes minutes."""
_VERSION = "version"
_RECIPE = "gpt-oss"
"""The recipe of a user's own server."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A server to check: its address without /v1, its model, the API key, and the digest of its stack, None if unknown."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    stack: str | None = None


def names() -> tuple[str, ...]:
    """Name the cases."""
    return tuple(f"{SUITE}/{name}" for name in checks.GENERAL)


def run(server: ServedModel, encode: Encode, needs: tuple[str, ...], tell: Progress) -> Iterator[Case]:
    """Run the cases, one after the other.

    Raises:
        StackError: the model is not a gpt-oss, or the prompts could not be encoded.

    """
    talk = Talk(server.url, server.model, key=server.key)
    date = dates.used(talk, datetime.now(UTC).date().isoformat())
    tokens = encode(prompts.texts(checks.identifiers(), date))
    tested = ServerUnderTest(talk, recipes.load(_RECIPE), lambda: "", tokens, server.stack or "", date, REQUESTS)
    for place, (name, check) in enumerate(checks.GENERAL.items()):
        tell(f"serve suite: {name}", place, len(checks.GENERAL))
        case = Case(f"{SUITE}/{name}", Outcome.PASSED, needs=needs)
        if name == _VERSION and server.stack is None:
            yield replace(case, outcome=Outcome.NOT_RUN, why="nobody says which stack the server is of")
            continue
        began = time.monotonic()
        try:
            with talk.taken():
                measured = check(tested)
        except Wrong as wrong:
            yield replace(case, outcome=Outcome.FAILED, why=str(wrong), seconds=time.monotonic() - began)
        else:
            yield replace(case, measured=measured, seconds=time.monotonic() - began)


def not_run(why: str, needs: tuple[str, ...]) -> Iterator[Case]:
    """Yield all cases as not run, for one reason."""
    return (Case(name, Outcome.NOT_RUN, why, needs) for name in names())
