# SPDX-License-Identifier: Apache-2.0
"""Client of a server that needs only Python's standard library: requests, and streamed answers with the time of each part."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stack.base.errors import StackError

_WAIT = 300.0
"""Seconds that an answer may take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of a completion. `prompt` is as the server read it; `times` are seconds from the request to each part."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    times: tuple[float, ...]
    parts: tuple[int, ...]
    """Number of tokens in each part."""
    counted: int
    """Number of tokens that the server reports."""
    finish: str

    def decode_rate(self) -> float:
        """Compute tokens per second, from the first part to the last.

        Raises:
            StackError: there was only one part.

        """
        if len(self.times) < 2 or self.times[-1] <= self.times[0]:
            raise StackError("the answer came in one part", "ask for more tokens")
        return sum(self.parts[1:]) / (self.times[-1] - self.times[0])


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request; return the status and the content: parsed JSON, else text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT)
    try:
        connection.request(
            method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"} if body else {}
        )
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text
    finally:
        connection.close()


def complete(port: int, model: str, prompt: list[int], tokens: int) -> Answer:
    """Generate exactly `tokens` tokens greedily, as a stream.

    Raises:
        StackError: the answer is not a completion, or the server's count differs from the tokens that it sent.
        OSError: the server does not answer.

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
        text = line.decode("utf-8", "replace").strip()
        if text == "data: [DONE]":
            return
        if text.startswith("data: "):
            event = json.loads(text.removeprefix("data: "))
            if "error" in event:
                raise StackError(f"the server stops with an error: {json.dumps(event['error'])[:300]}", "see its log")
            yield event
    raise StackError("the stream stops without [DONE]", "see the server's log")


def _answer(events: list[tuple[float, dict[str, Any]]]) -> Answer:
    prompt: list[int] = []
    tokens: list[int] = []
    parts: list[tuple[float, int]] = []
    finish, counted = "", -1
    for at, event in events:
        counted = (event.get("usage") or {}).get("completion_tokens", counted)
        for choice in event["choices"]:
            prompt = choice.get("prompt_token_ids") or prompt
            finish = choice.get("finish_reason") or finish
            new = choice.get("token_ids") or []
            tokens += new
            parts += [(at, len(new))] if new else []
    if counted != len(tokens):
        raise StackError(f"the server sends {len(tokens)} tokens and counts {counted}", "its numbers cannot be trusted")
    return Answer(
        tuple(prompt), tuple(tokens), tuple(at for at, _ in parts), tuple(count for _, count in parts), counted, finish
    )
