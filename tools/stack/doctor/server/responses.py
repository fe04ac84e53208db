# SPDX-License-Identifier: Apache-2.0
"""Ask /v1/responses, OpenAI's newer API, whole and by its events."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stack.doctor.finding import Found, note, wrong
from stack.doctor.server.answers import Answer, count, odd
from stack.doctor.server.chat import fault, judged
from stack.doctor.server.client import NoAnswer
from stack.doctor.server.events import Json
from stack.doctor.server.interview import CAPITAL, REFUSED, Interview
from stack.doctor.server.shown import SEE_LOG, shown

_PATH = "/v1/responses"
ENOUGH = 256
"""Tokens of an answer, with its reasoning."""
_ITEMS = 100
"""Items of an output, and parts of an item, that are read."""


def whole(interview: Interview) -> Iterator[Found]:
    """Ask for the capital of France as one piece."""

    def answer(allowed: int) -> Answer:
        reply = interview.client.post(_PATH, _body(interview, allowed))
        if reply.status != 200:
            raise reply.refusal()
        return _read(reply.json(), allowed, reply.seconds)

    try:
        got = interview.paid(interview.purse.allowed(ENOUGH, interview.reserved), answer)
    except NoAnswer as failed:
        yield _missing(failed)
        return
    yield from judged(got)


def events(interview: Interview) -> Iterator[Found]:
    """Ask the same as a stream of events; their deltas have to be the text of the last event."""
    try:
        got = interview.paid(interview.purse.allowed(ENOUGH, interview.reserved), lambda most: _streamed(interview, most))
    except NoAnswer as failed:
        yield _missing(failed)
        return
    yield from (tuple(fault(got)) or (*_deltas(got), *judged(got)))


def _streamed(interview: Interview, allowed: int) -> Answer:
    stream = interview.client.stream(_PATH, {**_body(interview, allowed), "stream": True}, 4 * allowed)
    pieces = sum(isinstance(event.get("delta"), str) for event in stream.events)
    last = stream.events[-1].get("response") if stream.events else None
    got = _read(last, allowed, 0) if isinstance(last, dict) and stream.done else Answer("", "", (), "None", allowed, 0)
    return replace(got, seconds=time.monotonic() - stream.began, stream=stream, pieces=pieces)


def _body(interview: Interview, allowed: int) -> Json:
    return {"model": interview.model, "input": CAPITAL, "temperature": 0, "max_output_tokens": allowed, "store": False}


def _missing(failed: NoAnswer) -> Found:
    """Report a server without this API; that is not a fault."""
    if failed.status in (404, 405, 501):
        return note(f"it has no {_PATH}: clients of OpenAI's Responses API, such as Codex, cannot use it")
    if failed.status in REFUSED:
        return note(f"{_PATH} refuses a plain question: {failed.found.what}")
    raise failed


def _read(value: Any, allowed: int, seconds: float) -> Answer:
    """Read an answer: its output is a list of items, such as a message and its reasoning.

    Raises:
        NoAnswer: it has another form.

    """
    output = value.get("output") if isinstance(value, dict) else None
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise odd("the answer has no list `output`", value)
    if value.get("status") == "failed":
        raise NoAnswer(wrong(f"the answer's status is failed: {shown(value.get('error'))}", SEE_LOG), status=200, spent=True)
    usage = value.get("usage") if isinstance(value.get("usage"), dict) else {}
    cut = value.get("status") == "incomplete"
    content, reasoning = ("".join(_texts(output, kind, value)) for kind in ("message", "reasoning"))
    ended = "length" if cut else "stop"
    return Answer(
        content, reasoning, (), ended, allowed, seconds, count(usage.get("output_tokens")), count(usage.get("input_tokens"))
    )


def _texts(output: list[Json], kind: str, value: object) -> Iterator[str]:
    for item in output[:_ITEMS]:
        parts = item.get("content") or []
        if item.get("type") != kind:
            continue
        if not isinstance(parts, list) or not all(isinstance(each, dict) for each in parts):
            raise odd("the content of an item has a wrong form", value)
        for each in parts[:_ITEMS]:
            if not isinstance(text := each.get("text") or "", str):
                raise odd("the text of an item is not a text", value)
            yield text


def _deltas(got: Answer) -> Iterator[Found]:
    stream = got.stream
    assert stream is not None
    deltas = [event.get("delta") for event in stream.events if event.get("type") == "response.output_text.delta"]
    text = "".join(delta for delta in deltas if isinstance(delta, str))
    if text != got.content:
        what = f"the deltas of the stream are not the text of its last event: {shown(text, 60)} / {shown(got.content, 60)}"
        yield wrong(what, "most often a parser that strips or loses text in streams: a newer server")
