# SPDX-License-Identifier: Apache-2.0
"""Run the cases of the serve suite that hold for any running gpt-oss, and need neither a restart nor a certain date."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from stack.base.progress import Progress
from stack.deploy import recipes
from stack.model.verdict import Case, Outcome
from stack.owner.checking import harmony_tokens
from stack.owner.checking.harmony_tokens import Encode
from stack.validation.serve import checks, prompts
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
    key: str | None = None
    stack: str | None = None


def names() -> tuple[str, ...]:
    """Name the cases."""
    return tuple(f"{SUITE}/{name}" for name in checks.GENERAL)


def run(server: ServedModel, encode: Encode, needs: tuple[str, ...], tell: Progress) -> Iterator[Case]:
    """Run the cases, one after the other.

    Raises:
        StackError: the prompts could not be encoded.

    """
    talk = Talk(server.url, server.model, key=server.key)
    tokens = _tokens(talk, encode)
    tested = ServerUnderTest(talk, recipes.load(_RECIPE), lambda: "", tokens, server.stack or "", requests=REQUESTS)
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


def _tokens(talk: Talk, encode: Encode) -> Mapping[str, Sequence[int]]:
    """Encode all texts, with the date that the server puts into its system message."""
    texts = prompts.texts(checks.identifiers())
    key = f"asked {' '.join(prompts.LETTERS)}"
    known = encode({date: harmony_tokens.dated({key: texts[key]}, date)[key] for date in harmony_tokens.dates()})
    sent = _prompt_tokens(talk)
    date = next((date for date, tokens in known.items() if list(tokens) == sent), next(iter(known)))
    return encode(harmony_tokens.dated(texts, date))


def _prompt_tokens(talk: Talk) -> Sequence[int]:
    """Ask the server which tokens its model gets for a message; empty if it does not tell."""
    try:
        with talk.taken():
            got = talk.ask(
                checks.CHAT, **prompts.echo(prompts.LETTERS).body, temperature=0, max_tokens=1, return_token_ids=True
            )
            return list(got.part("prompt_token_ids") or ())
    except Wrong:
        return ()


def usable(model: str) -> bool:
    """Tell whether a served model is a gpt-oss: the suite's prompts are in its format."""
    return "gpt-oss" in model.lower()
