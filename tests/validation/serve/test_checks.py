# SPDX-License-Identifier: Apache-2.0
"""Every check passes on a server that tells the truth, and fails on each of these lies."""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from stack.deploy.recipes import Bar, Recipe
from stack.validation.model import expected_replies
from stack.validation.serve import checks, numbers, prompts
from stack.validation.serve.checks import ServerUnderTest
from stack.validation.serve.client import Talk, Wrong

from . import lying_vllm

BACKEND = "Using 'CPU' Mxfp4 MoE backend."
RECIPE = Recipe("tiny", "A tiny model", "tiny", (), {}, (), (BACKEND,), Bar("largest", 1e-4))
EFFECTS = {name: effect for effects in checks.EFFECTS.values() for name, effect in effects.items()}
NUMBERS = {
    "log-probabilities": lambda asked: judged(numbers.scores(asked, lying_vllm.REFERENCE)),
    "greedy": lambda asked: judged(numbers.answers(asked, lying_vllm.REFERENCE)),
}
ALL: dict[str, Callable[[ServerUnderTest], object]] = {**checks.CHECKS, **checks.GENERAL, **EFFECTS, **NUMBERS}


def judged(found: numbers.Judged) -> None:
    if found.why:
        raise Wrong(found.why)


@contextmanager
def asking(lie: lying_vllm.Lie = str, **how: Any) -> Iterator[ServerUnderTest]:
    with lying_vllm.serving(lie, **how) as url:
        yield ServerUnderTest(
            Talk(url, lying_vllm.MODEL), RECIPE, lambda: f"INFO {BACKEND}", lying_vllm.TOKENS, lying_vllm.STACK
        )


def other(old: str, new: str) -> lying_vllm.Lie:
    """Another text in place of one; the lie has to find it, or the check would fail for nothing."""
    return lambda text: text.replace(old, new)


def first_number(key: str) -> lying_vllm.Lie:
    """The first number of a list is one higher."""
    return lambda text: re.sub(rf'("{key}": \[)(\d+)', lambda found: f"{found[1]}{int(found[2]) + 1}", text)


def swapped(text: str) -> str:
    """Two requests get each other's answer."""
    return text.replace("own-7-", "own-8-") if "own-7-" in text else text


def one_letter_lost(text: str) -> str:
    """In one of many answers a letter is missing."""
    return text.replace(f" {checks.identifiers()[4][2]}", "", 1) if "own-4-" in text else text


CONTENT, THOUGHT = expected_replies.content(prompts.LETTERS), f'"{expected_replies.THOUGHT}"'
LIES: list[tuple[str, lying_vllm.Lie]] = [
    ("models", other('"id": "tiny"', '"id": "another"')),
    ("models", other('"data": [{"id": "tiny", "max_model_len": 4096}]', '"data": []')),
    ("version", other("g01234567", "g01234568")),
    ("version", other(".g01234567.cpu", "")),
    ("chat/whole", other(CONTENT, f"{expected_replies.THOUGHT}{CONTENT}")),
    ("chat/whole", other(f'"reasoning": {THOUGHT}', '"reasoning": null')),
    ("chat/whole", other(f'"reasoning": {THOUGHT}', f'"reasoning_content": {THOUGHT}')),
    ("chat/whole", other('"finish_reason": "stop"', '"finish_reason": "length"')),
    ("chat/whole", other('"completion_tokens": ', '"completion_tokens": 1')),
    ("chat/whole", first_number("token_ids")),
    ("chat/whole", lambda _: "!500 the engine is dead"),
    ("chat/whole", lambda _: "<html>"),
    ("chat/whole", lambda _: "{}"),
    *((f"prompt/{name}", first_number("prompt_token_ids")) for name in prompts.CHAT),
    *((f"prompt/{name}", other('"prompt_token_ids"', '"ids"')) for name in prompts.CHAT),
    ("chat/stream", other('"content": " m"', '"content": ""')),
    ("chat/stream", other('"content": "I"', '"content": "II"')),
    ("chat/stream", other('"reasoning": ', '"thoughts": ')),
    ("chat/stream", other('"role": "assistant"', '"role": "user"')),
    ("chat/stream", other('"finish_reason": "stop"', '"finish_reason": null')),
    ("chat/stream", other('"completion_tokens": ', '"completion_tokens": 1')),
    ("chat/stream", first_number("token_ids")),
    ("chat/stream", lambda text: text[:-1]),
    ("responses/whole", other(CONTENT, "")),
    ("responses/whole", other('"type": "reasoning"', '"type": "message"')),
    ("responses/whole", other('"status": "completed"', '"status": "incomplete"')),
    ("responses/whole", other('"input_tokens": ', '"input_tokens": 1')),
    ("responses/stream", other('"delta": " m"', '"delta": ""')),
    ("responses/stream", other('"delta": "User"', '"delta": "Nobody"')),
    ("responses/stream", other("response.completed", "response.failed")),
    ("responses/stream", other(f'"text": "{CONTENT}"', '"text": "something else"')),
    ("tool-call/chat", other(f'"name": "{expected_replies.TOOL}"', '"name": "rm"')),
    ("tool-call/chat", other('"finish_reason": "tool_calls"', '"finish_reason": "stop"')),
    ("tool-call/chat", other("Köln", "Bonn")),
    ("tool-call/chat", other("}]", "]")),
    ("tool-call/chat", other('"content": null', '"content": "{}"')),
    ("tool-call/chat", other('"tool_calls": [', '"tools": [')),
    ("tool-call/stream", other(f'"name": "{expected_replies.TOOL}"', '"name": null')),
    ("tool-call/stream", other('\\"Köln', "")),
    ("tool-call/responses", other('"type": "function_call"', '"type": "message"')),
    ("tool-call/responses", other("Köln", "Bonn")),
    ("ends/limit", other('"finish_reason": "length"', '"finish_reason": "stop"')),
    ("ends/limit", other('"content": null', '"content": "User wants"')),
    ("ends/limit", other('"reasoning": "User wants"', '"reasoning": ""')),
    ("ends/word", other('"stop_reason": " b"', '"stop_reason": null')),
    ("ends/word", other('"content": "I echo q x m', '"content": "I echo q x m b t')),
    ("ends/token", other(f"{checks.RETURN}]", "200007]")),
    ("ends/token", other(f"{checks.CALLED}]", "200007]")),
    ("many-at-once", swapped),
    ("many-at-once", one_letter_lost),
    ("log-probabilities", other('"logprob": -1.14', '"logprob": -1.15')),
    ("log-probabilities", other('"logprob": -1.14', '"logprob": NaN, "was": -1.14')),
    ("log-probabilities", other('"prompt_logprobs": [null, {', '"prompt_logprobs": [{')),
    ("log-probabilities", other("logprob", "likelihood")),
    ("greedy", first_number("token_ids")),
    ("greedy", other("-0.1, -0.1]", "-0.1, -0.2]")),
    ("greedy", other("-0.1, -0.1]", "-0.1]")),
    ("answer/counted", other('"completion_tokens": ', '"completion_tokens": 1')),
    ("answer/counted", other('"finish_reason": "stop"', '"finish_reason": "abort"')),
    ("answer/counted", lambda text: text.replace(CONTENT, "").replace(expected_replies.THOUGHT, "")),
    ("answer/same-as-stream", other('{"content": " m"}', '{"content": " n"}')),
    (
        "answer/same-as-stream",
        other('{"reasoning": "User wants an answer"}, "token_ids": [', '{"reasoning": ""}, "token_ids": ['),
    ),
    ("answer/same-as-stream", other(f'"finish_reason": "stop", "token_ids": [{checks.RETURN}]', '"finish_reason": "stop"')),
    ("own-prompts-at-once", swapped),
    ("own-prompts-at-once", lambda text: first_number("prompt_token_ids")(text) if "own-4-" in text else text),
    (
        "own-prompts-at-once",
        lambda text: text.replace('"completion_tokens": ', '"completion_tokens": 1') if "own-9-" in text else text,
    ),
    ("characters-of-arguments", other("Köln", "K\\\\u00f6ln")),
]


@pytest.mark.parametrize("name", ALL)
def test_the_truth_passes(name: str) -> None:
    with asking() as asked:
        ALL[name](asked)


@pytest.mark.parametrize(("name", "lie"), LIES)
def test_a_lie_fails(name: str, lie: lying_vllm.Lie) -> None:
    with asking(lie) as asked, pytest.raises(Wrong) as failed:
        ALL[name](asked)
    assert str(failed.value)


def test_every_check_is_lied_to() -> None:
    """What no lie above fails, one of the tests below does."""
    assert ALL.keys() - {name for name, _ in LIES} == {"backends", "null-tool-calls", "lists-of-outputs"}


def test_another_backend_fails() -> None:
    with asking() as asked, pytest.raises(Wrong, match="Mxfp4") as failed:
        ALL["backends"](replace(asked, log=lambda: "INFO Using 'MARLIN' Mxfp4 MoE backend."))
    assert "MARLIN" in str(failed.value)


@pytest.mark.parametrize(
    ("name", "refuses"),
    [
        ("null-tool-calls", lambda body: "tool_calls" in body["messages"][0]),
        ("lists-of-outputs", lambda body: isinstance(body["input"][-1]["output"], list)),
    ],
)
def test_what_is_refused_fails(name: str, refuses: Callable[[lying_vllm.Json], bool]) -> None:
    with asking(refuses=refuses) as asked, pytest.raises(Wrong, match="it answers 400"):
        ALL[name](asked)


@pytest.mark.parametrize("name", ["chat/stream", "tool-call/stream"])
def test_a_stream_without_end_fails(name: str) -> None:
    with asking(ends=False) as asked, pytest.raises(Wrong, match="its final event is missing"):
        ALL[name](asked)


def test_a_failure_shows_request_answer_and_what_was_expected() -> None:
    with asking(other(CONTENT, "Nothing")) as asked, pytest.raises(Wrong) as failed:
        checks.chat(asked)
    text = str(failed.value)
    assert "the content is Nothing" in text
    assert "request: POST /v1/chat/completions" in text
    assert "answer: {" in text
    assert f"expected: {CONTENT}" in text


ODD: tuple[Any, ...] = (None, 1e308, "\ud800", [None], {})


def parts(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each part of an answer, as what holds it and the key there."""
    for key, part in list(value.items() if isinstance(value, dict) else enumerate(value[:3])):
        yield value, key
        if isinstance(part, dict | list):
            yield from parts(part)


@pytest.mark.parametrize("name", [name for name in ALL if name != "backends"])
def test_an_answer_of_another_form_is_a_failure_and_no_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "REQUESTS", 4)
    now: list[tuple[int, Any]] = [(0, None)]

    def lie(text: str) -> str:
        value = json.loads(text)
        found = list(parts(value))
        place, part = now[0]
        holder, key = found[place % len(found)]
        holder[key] = part
        return json.dumps(value)

    failed = 0
    with asking(lie) as asked:
        for now[0] in itertools.product(range(-8, 8), ODD):
            try:
                with asked.talk.taken():
                    ALL[name](asked)
            except Wrong:
                failed += 1
    assert failed


def test_a_failure_of_form_shows_request_and_answer() -> None:
    with asking(other('"usage": {', '"usage": [], "other": {')) as asked, pytest.raises(Wrong) as failed, asked.talk.taken():
        checks.counted(asked)
    text = str(failed.value)
    assert text.startswith("the answer has a wrong form (AttributeError: 'list' object")
    assert "request: POST /v1/chat/completions" in text
    assert '"usage": []' in text


def test_nobody_answers() -> None:
    with asking() as asked:
        pass
    with pytest.raises(Wrong, match="it does not answer"):
        checks.chat(asked)


def test_a_bar_that_a_fault_would_pass_fails() -> None:
    wrong = {"no sinks": [-1.2, -2.0], "a small one": [-1.001, -2.0]}
    bar = Bar("largest", 0.01)
    assert "would not notice: a small one" in numbers.judge(bar, [-1.0, -2.0], [-1.0, -2.0], wrong).why
    assert not numbers.judge(replace(bar, blind=("a small one",)), [-1.0, -2.0], [-1.0, -2.0], wrong).why
    assert (
        "that does not exist: no such" in numbers.judge(replace(bar, blind=("no such",)), [-1.0, -2.0], [-1.0, -2.0], wrong).why
    )


def test_what_is_measured() -> None:
    found = numbers.judge(Bar("rms", 0.1), [-1.03, -2.04], [-1.0, -2.0], {"no sinks": [-1.5, -2.5]})
    assert found.measured["rms difference"] == pytest.approx(math.sqrt(0.00125))
    assert found.measured["no sinks"] == pytest.approx(0.5)
    assert found.margins == {"good": pytest.approx(0.1 / math.sqrt(0.00125)), "nearest fault": pytest.approx(5)}


def test_an_expert_that_no_token_reaches_fails() -> None:
    with asking() as asked, pytest.raises(Wrong, match="does not reach expert 1 of layer 0"):
        numbers.scores(asked, lying_vllm.REFERENCE | {"routed": [[5, 0], [2, 3]]})


def test_identifiers_differ() -> None:
    found = checks.identifiers()
    assert len(set(found)) == checks.REQUESTS
    assert all(len(set(letters)) == len(letters) for letters in found)
