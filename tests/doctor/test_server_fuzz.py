# SPDX-License-Identifier: Apache-2.0
"""Answers with parts of any type: whatever a server sends, each question has an outcome, in words that a terminal can show."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from stack.doctor import running
from stack.doctor.server.interview import Question

from . import servers
from .good_server import DONE, Json, Reply, as_json, event
from .servers import Manner

VALUES = (
    None,
    True,
    -1,
    0,
    1e400,
    float("nan"),
    10**30,
    "",
    "x\x1b[2J",
    [],
    [[]],
    {},
    {"a": 1},
    [None],
    [7],
    "!" * 50,
    "a" * 70_000,
)


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*place, key))


def spoiled(value: Any, dice: random.Random) -> Any:
    """A value with one part that is missing, or has another type."""
    *above, last = dice.choice([*places(value)][1:])
    inside = value
    for key in above:
        inside = inside[key]
    if dice.random() < 0.2:
        del inside[last]
    else:
        inside[last] = dice.choice(VALUES)
    return value


def liar(dice: random.Random) -> Manner:
    def change(path: str, body: Json, good: Reply) -> Reply:
        if path == "/health":
            return good
        if not isinstance(good.body, bytes):
            return Reply(spoiled_events(good), kind=good.kind)
        if path == "/metrics":
            return Reply(bytes(dice.randrange(256) if dice.random() < 0.03 else byte for byte in good.body))
        return as_json(spoiled(json.loads(good.body), dice)) if dice.random() < 0.5 else good

    def spoiled_events(good: Reply) -> Iterator[bytes]:
        for each in good.body:
            assert isinstance(each, bytes)
            kept = each == DONE or dice.random() < 0.7
            yield each if kept else event(spoiled(json.loads(each.removeprefix(b"data:")), dice))

    return Manner(change=change, pause=0)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 500), marks=pytest.mark.images)], ids=["few", "many"])
def test_no_answer_is_too_odd(seeds: range) -> None:
    for seed in seeds:
        with servers.serving(liar(random.Random(seed))) as url:
            asked = [*running.interview(url, None, None, None, key=None, longest=30)]
        assert [each.question.name for each in asked] == [question.name for question in running.CHECKS], seed
        for finding in (finding for each in asked for finding in each.findings):
            text = finding.found.what + finding.found.fix
            assert all(letter.isprintable() for letter in text), (seed, text)
            assert len(text) < 2000, (seed, text)


def test_a_form_that_no_question_foresees_is_a_finding() -> None:
    question = Question("odd", "anything", "fine", lambda interview: interview.model.nothing)  # type: ignore[attr-defined]
    (asked,) = running.interview("http://127.0.0.1:9", None, None, None, key=None, longest=5, questions=[question])
    assert (asked.outcome, "a wrong form (AttributeError" in asked.findings[0].found.what) == ("wrong", True)
