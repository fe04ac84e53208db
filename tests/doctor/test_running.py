# SPDX-License-Identifier: Apache-2.0
"""Servers are asked over the wire; those that lie, hang or answer garbage give findings."""

import time

import pytest

from stack.deploy import recipes
from stack.doctor import running
from stack.doctor.finding import Finding, Severity
from stack.doctor.loops import loop

from . import servers
from .servers import Case, Manner

SPARK = recipes.load("gpt-oss-120b-spark")
LIMIT = 97.0
CASES = [
    pytest.param(name, case, id=f"{name}-{place}") for name, found in servers.LOUD.items() for place, case in enumerate(found)
]


BEFORE = {
    "logprobs": ["content"],
    "stream": ["content"],
    "system-message": ["content"],
    "speed": ["repetition"],
    "context-64k": ["context-8k"],
}
"""The questions that others need the answers of."""


def ask(manner: Manner, longest: float = 30.0, only: str | None = None) -> list[Finding]:
    wanted = {"health", "model", *BEFORE.get(only or "", ()), only}
    questions = [one for one in running.CHECKS if only is None or one.name in wanted]
    with servers.serving(manner) as url:
        return [*servers.looked(url, None, SPARK, LIMIT, key=None, longest=longest, questions=questions)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_it_speaks(name: str, case: Case) -> None:
    longest = 3.0 if case.manner.late else case.longest
    found = [one for one in ask(case.manner, longest, name) if one.check == name]
    fitting = [one for one in found if one.severity is case.severity and case.what in one.found.what]
    assert fitting, [(one.severity, one.found.what) for one in found]
    assert case.fix in fitting[0].found.fix
    assert all(letter.isprintable() for each in found for letter in each.found.what + each.found.fix)
    assert len(fitting[0].found.what) < 1000
    if case.severity is Severity.WRONG:
        assert fitting[0].found.fix


STEADY = Manner(pause=1 / 70, tokens=120)
"""70 tokens a second, where 45 to 101 are in order: on a busy machine the first token may be 0.5 s late, the last one 0.9 s."""


def test_the_text_of_a_broken_stream_is_not_judged() -> None:
    cut = servers.streaming(servers.delta(content="The capital of France"), done=False)
    found = [one.found.what for one in ask(cut, only="stream") if one.check == "stream"]
    assert [text.partition(",")[0] for text in found] == ["the stream breaks off without [DONE]"]


def test_it_is_quiet() -> None:
    found = ask(STEADY, longest=60)
    assert {one.severity for one in found} == {Severity.FINE}, found
    assert [one.check for one in found] == [one.name for one in running.CHECKS]


def test_speed_stands_beside_expectation_and_limit() -> None:
    (speed,) = (one.found.what for one in ask(STEADY, longest=60) if one.check == "speed")
    assert "60 are expected (the fork's container" in speed
    assert "the memory allows 97" in speed
    assert 0 < float(speed.split()[0]) < LIMIT


def test_nothing_is_asked_of_a_server_that_does_not_answer() -> None:
    began = time.monotonic()
    found = ask(Manner(late=2), longest=1)
    assert time.monotonic() - began < 60
    assert [one.severity for one in found] == [Severity.WRONG, *[Severity.UNKNOWN] * (len(running.CHECKS) - 1)]


def test_a_server_that_hangs_is_asked_once() -> None:
    def hang(body: servers.Json) -> servers.Json:
        time.sleep(1.5)
        return servers.answered(body)

    found = ask(Manner(chat=hang), longest=1)
    place = [one.check for one in found].index("content")
    left = len(running.CHECKS) - place - 1
    assert [one.severity.value for one in found[place:]] == ["wrong", *["could not tell"] * left]


def test_all_answers_together_take_no_longer_than_asked() -> None:
    """Each answer comes in time, and all of them do not."""
    (last,) = (one for one in ask(Manner(late=0.4), longest=1.2) if one.check == "repetition")
    assert last.severity is not Severity.FINE


def test_nobody_is_there() -> None:
    found = [*servers.looked("http://127.0.0.1:9", None, None, None, key=None, longest=2)]
    assert found[0].severity is Severity.WRONG
    assert "the server does not answer" in found[0].found.what


@pytest.mark.parametrize(
    ("text", "repeats"),
    [
        (servers.PROSE, None),
        ("", None),
        ("one two", None),
        ("-" * 500, None),
        ("| a | b |\n" + "|---|---|\n" + "| 1 | 2 |\n" * 3, None),
        ("So: " + "I think that " * 30, "I think that"),
        ("好的好的好的" * 20, "好的"),
        (" ".join(f"the {number % 3} thing is" for number in range(200)), "the"),
    ],
)
def test_loops(text: str, repeats: str | None) -> None:
    found = loop(text)
    assert (found is None) is (repeats is None)
    assert found is None or (repeats or "") in found


def test_long_texts_take_no_time() -> None:
    began = time.monotonic()
    assert loop(" ".join(str(number * number) for number in range(100_000))) is None
    assert time.monotonic() - began < 60
