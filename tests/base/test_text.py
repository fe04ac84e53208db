# SPDX-License-Identifier: Apache-2.0
import ast
import re
from pathlib import Path

import pytest

import stack
from stack.base.text import counted, last_line, printable, shortened


@pytest.mark.parametrize("odd", ["\x1b", "\x00", "\x7f", "\x9b", "\r", "\u2028", "\u202e", "\ufeff", "\udcff"])
def test_what_moves_the_cursor_is_taken_out(odd: str) -> None:
    assert printable(f"a{odd}[2J\u00fc") == "a?[2J\u00fc"
    assert printable(f"a{odd}b", " ") == "a b"
    assert printable(f"a{odd}\tb\n", kept="\t\n") == "a?\tb\n"


def test_lines_are_kept_where_that_is_said() -> None:
    assert printable("one\n\ttwo\n") == "one??two?"


@pytest.mark.parametrize("most", [5, 17, 300])
def test_what_is_shortened_keeps_beginning_and_cause(most: int) -> None:
    said = "Error: committing container for step " + "x" * 500 + ": no space left on device"
    shown = shortened(said, most)
    assert len(shown) == most
    begin, _, end = shown.partition(" … ")
    assert said.startswith(begin)
    assert said.endswith(end)
    assert len(end) >= len(begin)


def test_what_is_short_stays() -> None:
    assert shortened("no space left on device", 23) == "no space left on device"


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("file",), "0 files"),
        (1, ("file",), "1 file"),
        (2, ("patch",), "2 patches"),
        (1, ("case stands", "cases stand"), "1 case stands"),
        (2, ("case stands", "cases stand"), "2 cases stand"),
    ],
)
def test_counted(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text


def test_no_text_leaves_the_plural_to_its_reader() -> None:
    texts = [
        (file.name, node.value)
        for file in Path(stack.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert len(texts) > 1000
    assert [one for one in texts if re.search(r"[a-z]\((s|es)\)(\W|$)", one[1])] == []


@pytest.mark.parametrize(("output", "last"), [("", ""), (" \n\n", ""), ("a\n b \n\n", "b"), ("a\rb\n \t\n", "b")])
def test_the_last_line_that_is_not_blank(output: str, last: str) -> None:
    assert last_line(output) == last
