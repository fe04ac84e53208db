# SPDX-License-Identifier: Apache-2.0
"""The series harmony: outputs by chance, read with the series and without it.

Every difference is of a class that is meant, and the invariants hold whatever the model samples. VALIDATION_HARMONY_SEQUENCES sets
how many outputs are read; their seeds are fixed.
"""

import functools
import os
from collections import Counter
from typing import Any

import harmony_difference as difference
import pytest
from harmony_base import Process
from harmony_sequences import sequence

# Before vLLM is imported
BASE = Process(lambda numbers: [difference.outcome(number) for number in numbers])

HEADERS = "vllm/read-the-message-headers-that-gpt-oss-gets-wrong.patch"
PROVES = {HEADERS: ["test_invariants"]}

pytestmark = pytest.mark.filterwarnings("ignore")

SEQUENCES = int(os.environ.get("VALIDATION_HARMONY_SEQUENCES", "1200"))
PARTS = 8
CLASSES = {
    "arguments as they were written",
    "line breaks between messages of a stream",
    "a recipient without any tools",
    "a malformed header",
    "a message without an end",
    "a header without a message",
}
"""Classes that the default number of sequences has."""


def numbers(part: int) -> range:
    return range(part, SEQUENCES, PARTS)


@functools.cache
def ours(number: int) -> dict[str, Any]:
    """Return the outcome of a sequence with the series."""
    return difference.outcome(number)


@pytest.mark.parametrize("part", range(PARTS))
def test_invariants(part: int) -> None:
    for number in numbers(part):
        one = sequence(number)
        assert not difference.broken(one, ours(number)), f"{number}: {one.text!r} {ours(number)}"


@pytest.fixture(scope="module")
def found() -> Counter[str]:
    """Count the differences by class, and show those that are not meant."""
    classes: Counter[str] = Counter()
    for number, base in zip(range(SEQUENCES), BASE.ask(list(range(SEQUENCES))), strict=True):
        one = sequence(number)
        for what, got in ours(number).items():
            # As it comes back from the other process, where tuples are lists
            if base[what] != got:
                name = difference.meant(one, what, base[what], got)
                classes[name or "not meant"] += 1
                if name is None:
                    print(f"{number} {what}: {one.text!r}\n  base {base[what]}\n  ours {got}")
    print(f"{SEQUENCES} sequences, differences by class: {dict(sorted(classes.items()))}")
    return classes


def test_differences_are_meant(found: Counter[str]) -> None:
    assert found["not meant"] == 0


def test_differences_are_there(found: Counter[str]) -> None:
    """A comparison of the series with itself would find none."""
    assert {*found} >= CLASSES


PLANTED = range(400)


def test_lost_text_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: messages that were held back are dropped."""
    reader = pytest.importorskip("vllm.parser.harmony_reader")
    monkeypatch.setattr(reader.HarmonyTokenReader, "_release", lambda *_: [])
    seen = {reason for number in PLANTED for reason in difference.broken(sequence(number), difference.outcome(number))}
    assert "lost text" in seen


def test_an_unmeant_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault in well-formed outputs: an answer loses its last character."""
    parsing = pytest.importorskip("vllm.parser.harmony")
    parse = parsing.HarmonyParser.parse

    def shortened(*arguments: Any, **rest: Any) -> Any:
        reasoning, content, calls = parse(*arguments, **rest)
        return reasoning, content and content[:-1], calls

    monkeypatch.setattr(parsing.HarmonyParser, "parse", shortened)
    base = BASE.ask(list(PLANTED))
    classes = [
        difference.meant(sequence(number), "whole", base[number]["whole"], got)
        for number in PLANTED
        if (got := difference.outcome(number)["whole"]) != base[number]["whole"]
    ]
    assert None in classes
