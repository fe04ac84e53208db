# SPDX-License-Identifier: Apache-2.0
"""Record a server's opinion of a text: for each token its log-probability, and the likeliest tokens at its place.

Two servers of a large model do not fit into one machine. So each is recorded while it runs, and the records are compared.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.base.errors import StackError
from stack.model import verdict
from stack.model.document import Table
from stack.model.ids import Sha256
from stack.validation.endpoint import Endpoint

SCHEMA = 1
TOP = 20
"""Number of likeliest tokens: vLLM's default maximum (--max-logprobs)."""
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}"

_PIECE = 4000
"""Characters of a text per request, about 1000 tokens."""
_SLACK = 1e-3
"""Tolerance by which probabilities may exceed 1, since log-probabilities are sums in single precision."""

_LOWEST = -1e5
"""Least log-probability; vLLM writes -9999 for minus infinity."""

Likely = Mapping[int, float]
"""Log-probabilities by token: of the likeliest ones, and of the text's own token."""


class UnscoredError(Exception):
    """Raised when an answer must not become a record; says why."""


@dataclass(frozen=True, slots=True)
class TokenPlace:
    """One token of a text, and the server's distribution at its place."""

    token: int
    likely: Likely

    @property
    def best(self) -> frozenset[int]:
        """The likeliest tokens; in BF16 the first two often have exactly the same probability."""
        most = max(self.likely.values())
        return frozenset(token for token, value in self.likely.items() if value == most)


@dataclass(frozen=True, slots=True)
class Scores:
    """A record: its name, the model, stack and text, and the text's tokens without the first of each piece."""

    name: str
    model: str
    stack: Sha256
    text: Sha256
    top: int
    here: bool
    places: tuple[TokenPlace, ...]

    @property
    def subject(self) -> tuple[object, ...]:
        """The properties that two records must share to be compared."""
        return (self.stack, self.text, self.top, tuple(place.token for place in self.places))


def digest(text: str) -> Sha256:
    """Hash a text to identify it."""
    return Sha256(hashlib.sha256(text.encode()).hexdigest())


def pieces(text: str) -> Iterator[str]:
    """Split a text at paragraphs into pieces that are small enough for a request."""
    piece = ""
    for paragraph in re.split(r"(?<=\n\n)", text):
        if piece and len(piece) + len(paragraph) > _PIECE:
            yield piece
            piece = ""
        piece += paragraph
    if piece.strip():
        yield piece


def score(server: Endpoint, model: str, text: str, top: int) -> tuple[TokenPlace, ...]:
    """Ask a server for its distributions over a piece of text. The first token has no place, since it has no context.

    Raises:
        StackError: the server does not answer, or not in the form of OpenAI's API.
        UnscoredError: its answer is not a distribution over the tokens of that text.

    """
    request = {
        "model": model,
        "prompt": text,
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": top,
        "return_token_ids": True,
    }
    answer = server.ask("completions", request)
    try:
        [choice] = answer["choices"]
        tokens, likely = choice["prompt_token_ids"], choice["prompt_logprobs"]
    except (KeyError, TypeError, ValueError) as odd:
        raise UnscoredError("the server has no prompt_logprobs or prompt_token_ids in its answers") from odd
    if not isinstance(tokens, list) or not isinstance(likely, list) or len(tokens) != len(likely) or len(tokens) < 2:
        raise UnscoredError("the server's log-probabilities are not those of its tokens: their numbers differ")
    return tuple(_place(token, entry, top) for token, entry in zip(tokens[1:], likely[1:], strict=True))


def _place(token: object, answered: object, top: int) -> TokenPlace:
    """Read and check one token's part of an answer.

    Raises:
        UnscoredError: it is not a distribution, or does not contain that token.

    """
    try:
        assert isinstance(token, int)
        assert isinstance(answered, dict)
        likely = {int(key): float(value["logprob"]) for key, value in answered.items()}
    except (AssertionError, KeyError, TypeError, ValueError) as odd:
        raise UnscoredError("the server's log-probabilities have an unknown form") from odd
    if not top <= len(likely) <= top + 1:
        raise UnscoredError(f"{len(likely)} log-probabilities for a token, requested were {top}")
    return _distributed(token, likely)


def _distributed(token: int, likely: Likely) -> TokenPlace:
    """Make a place, and check that its numbers are a distribution that contains the token.

    Raises:
        UnscoredError: they are not.

    """
    if token not in likely:
        raise UnscoredError(f"the token {token} of the text has no log-probability")
    # Written so that NaN is refused, too.
    if not all(_LOWEST <= value <= _SLACK for value in likely.values()) or _sum(likely) > 1 + _SLACK:
        raise UnscoredError(f"the log-probabilities for a token are not valid: {sorted(likely.values(), reverse=True)[:3]}")
    return TokenPlace(token, likely)


def _sum(likely: Likely) -> float:
    return math.fsum(math.exp(value) for value in likely.values())


def write(scores: Scores) -> bytes:
    """Serialize a record.

    Raises:
        StackError: the text is too long for a record.

    """
    content = {
        "schema": SCHEMA,
        "name": scores.name,
        "model": scores.model,
        "stack": scores.stack,
        "text": scores.text,
        "top": scores.top,
        "here": scores.here,
        "places": [[place.token, list(place.likely), list(place.likely.values())] for place in scores.places],
    }
    data = json.dumps(content, separators=(",", ":")).encode()
    if len(data) > verdict.LIMIT:
        raise StackError("the text is too long for a record", "use a shorter one, or a smaller --top")
    return data


def load(file: Path) -> Scores:
    """Read a record.

    Raises:
        StackError: it cannot be read, or is not a record.

    """
    try:
        data = file.read_bytes()
    except OSError as failed:
        raise StackError(f"{file} cannot be read ({failed.strerror})", "record it again") from failed
    content = verdict.parse(data, str(file))
    places = content.pop("places", None)
    table = Table(content, file=file)
    if table.whole("schema") != SCHEMA:
        raise table.error("schema", f"is not {SCHEMA}", "record it again")
    record = Scores(
        name=table.text("name", pattern=NAME, meaning="a name of letters, digits, '.', '_' and '-'"),
        model=table.text("model"),
        stack=Sha256(table.text("stack")),
        text=Sha256(table.text("text")),
        top=table.whole("top"),
        here=table.flag("here"),
        places=_places(places, file),
    )
    table.finish()
    if record.name != file.stem:
        raise StackError(f"{file} is a record of {record.name!r}", "do not rename a record: record it under the other name")
    return record


def _places(places: object, file: Path) -> tuple[TokenPlace, ...]:
    try:
        assert isinstance(places, list)
        assert places
        read = [(token, dict(zip(tokens, values, strict=True))) for token, tokens, values in places]
        assert all(_is_likely(token, likely) for token, likely in read)
        return tuple(_distributed(token, likely) for token, likely in read)
    except (AssertionError, TypeError, ValueError, UnscoredError) as odd:
        raise StackError(f"{file}: places have an unknown form", "record it again") from odd


def _is_likely(token: Any, likely: Mapping[Any, Any]) -> bool:
    numbers: Sequence[Any] = list(likely.values())
    return token in likely and all(type(key) is int for key in likely) and all(type(value) in (int, float) for value in numbers)
