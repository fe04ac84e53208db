# SPDX-License-Identifier: Apache-2.0
"""Patterns fit what they say, and take linear time on lines of one megabyte."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base import pattern
from stack.doctor.knowledge import check, load

FITS = [
    ("out of memory", "CUDA error: out of memory", True),
    ("out of memory", "CUDA error: out of Memory", False),
    ("Killed *cicc", "line 1: 4 Killed   /x/cicc --c++17", True),
    ("Killed *cicc", "cicc: 4 Killed x", False),
    ("Error {803|804}", "Error 804: forward", True),
    ("Error {803|804}", "Error 805: forward", False),
    ("{Reasoning|Tool}Parser", "GptOssToolParser", True),
    ("size (<n>) is", "World size (12) is larger", True),
    ("size (<n>) is", "World size (x) is larger", False),
    ("size (<n>", "size (123", True),
    ("line <n>: *Killed", "line : line 3: x Killed", True),
    ("[{9|9, 10}] x", "[9, 10] x", True),
    ("a\\*b and", "a*b and", True),
    ("a\\*b and", "axb and", False),
    ("named {{*cannot", "named {{x} cannot", True),
]


@pytest.mark.parametrize(("text", "line", "fits"), FITS)
def test_fits(text: str, line: str, fits: bool) -> None:
    assert pattern.parse(text).fits(line) is fits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ab", "fewer than 4 letters"),
        ("*", "fewer than 4 letters"),
        ("<n> clients", "<n> without text before it"),
        ("wait <n><n> clients", "<n> without text before it"),
        ("a {b||c} of it", "an empty choice"),
        ("x" * 401, "more than 400 characters"),
        ("bell \x07 rings", "cannot be printed"),
        ("*".join("word" for _ in range(25)), "more than 24 parts"),
        ("{a|b|c|d|e|f|g|h|i}{a|b|c|d|e|f|g|h|i} of it", "more than 64 texts"),
        ("{a|b|c|d|e|f|g|h|i}<n> of it", "more than 8 texts beside a number"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        pattern.parse(text)


PARTS = st.lists(st.sampled_from(["ab", "ba", "aab", "*", "{a|ab|b}", "<n>", "1", "x"]), min_size=2, max_size=6)


@given(PARTS, st.text("ab1x", max_size=24))
def test_it_is_what_a_regular_expression_finds(parts: list[str], line: str) -> None:
    """Where choices and numbers are followed by a gap or nothing, an expression that may go back finds no more."""
    try:
        made = pattern.parse("".join(["seed", "*", *parts]))
    except ValueError:
        return
    words = {"*": ".*", "<n>": r"\d{1,20}", "{a|ab|b}": "(?:a|ab|b)"}
    expression = "seed.*" + "".join(words.get(part, part) for part in parts)
    found = re.search(expression, f"seed{line}") is not None
    if made.fits(f"seed{line}"):
        assert found
    elif "<n>" not in parts and "{a|ab|b}" not in parts:
        assert not found


def test_a_line_of_one_megabyte() -> None:
    rules = load.builtin()
    began = time.process_time()
    worst = check.slowest(rules)
    assert worst is not None
    seconds, rule = worst
    assert seconds < 2, rule.id
    assert time.process_time() - began < 40
