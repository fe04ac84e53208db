# SPDX-License-Identifier: Apache-2.0
"""Asking a server, with nothing but Python: requests, and answers that come in parts with the time when they came."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stack.base.errors import StackError

_WAIT = 300.0
"""Seconds that one answer may take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of one completion; `asked` as the server read the prompt, `times` when each part came, from the request on."""

    asked: tuple[int, ...]
    tokens: tuple[int, ...]
    times: tuple[float, ...]
    parts: tuple[int, ...]
    """How many tokens came with each part."""
    counted: int
    """Tokens that the server says it made."""
    finish: str

    def decode_rate(self) -> float:
        """Tokens a second, from the first part to the last.

        Raises:
            StackError: it came in one part.

        """
        if len(self.times) < 2 or self.times[-1] <= self.times[0]:
            raise StackError("the answer came in one part", "ask for more tokens")
        return sum(self.parts[1:]) / (self.times[-1] - self.times[0])


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and content of an answer: JSON where it is such, else text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT)
    try:
        connection.request(
            method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"} if body else {}
        )
        answer = connection.getresponse()
        said = answer.read().decode("utf-8", "replace")
        try:
            return answer.status, json.loads(said)
        except ValueError:
            return answer.status, said
    finally:
        connection.close()


def complete(port: int, model: str, prompt: list[int], tokens: int) -> Answer:
    """Have exactly `tokens` tokens made, the likeliest each, in a stream.

    Raises:
        StackError: the server answers otherwise than completions do, or counts otherwise than it sends.
        OSError: it does not answer.

    """
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT)
    try:
        begun = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        stream = connection.getresponse()
        if stream.status != 200:
            raise StackError(
                f"the server answers {stream.status}: {stream.read(300).decode('utf-8', 'replace')}", "see its log"
            )
        return _answer([(time.perf_counter() - begun, event) for event in _events(stream)])
    finally:
        connection.close()


def _events(stream: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in stream:
        said = line.decode("utf-8", "replace").strip()
        if said == "data: [DONE]":
            return
        if said.startswith("data: "):
            event = json.loads(said.removeprefix("data: "))
            if "error" in event:
                raise StackError(f"the server breaks off: {json.dumps(event['error'])[:300]}", "see its log")
            yield event
    raise StackError("the answer ends without its end", "see the server's log")


def _answer(events: list[tuple[float, dict[str, Any]]]) -> Answer:
    asked: list[int] = []
    tokens: list[int] = []
    parts: list[tuple[float, int]] = []
    finish, counted = "", -1
    for at, event in events:
        counted = (event.get("usage") or {}).get("completion_tokens", counted)
        for choice in event["choices"]:
            asked = choice.get("prompt_token_ids") or asked
            finish = choice.get("finish_reason") or finish
            new = choice.get("token_ids") or []
            tokens += new
            parts += [(at, len(new))] if new else []
    if counted != len(tokens):
        raise StackError(f"the server sends {len(tokens)} tokens and counts {counted}", "no number can be believed then")
    return Answer(
        tuple(asked), tuple(tokens), tuple(at for at, _ in parts), tuple(count for _, count in parts), counted, finish
    )
