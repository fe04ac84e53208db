# SPDX-License-Identifier: Apache-2.0
"""Sentences in lines of 80 columns."""

import pytest

from stack.cli.sentences import say, wrapped

LONG = "a sentence of many words that goes on for a while, " * 3


def test_lines_are_broken_between_words() -> None:
    lines = wrapped(LONG)
    assert len(lines) == 2
    assert max(map(len, lines)) <= 80
    assert " ".join(line.strip() for line in lines) == LONG.strip()
    assert [line[:3] for line in wrapped(LONG, "> ")] == ["> a", ">  "]


def test_commands_and_paths_stay_whole() -> None:
    command = "`stack rebase gamma --onto v2.2 --with-required`"
    path = "/" + "folder-with-a-name/" * 8
    lines = wrapped(f"{'x ' * 30}{command} {path}")
    assert any(command in line for line in lines)
    assert any(line.strip() == path for line in lines)
    assert wrapped("") == [""]


@pytest.mark.parametrize(("words", "lines"), [("in DIR, then:", 1), (LONG, 3)])
def test_a_command_to_copy_stands_alone_if_the_line_is_full(capsys: pytest.CaptureFixture[str], words: str, lines: int) -> None:
    say(words, "stack rebase --continue DIR")
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert printed[-1].endswith("stack rebase --continue DIR")
    assert lines == 1 or printed[-1] == "  stack rebase --continue DIR"
