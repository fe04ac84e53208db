# SPDX-License-Identifier: Apache-2.0
"""Print sentences that are read at 80 columns, on a terminal and in a pipe; a narrower terminal gets shorter lines."""

import re
import sys
from typing import Any

import click

from stack.cli.rendering import called, terminal
from stack.cli.rendering.text import echo, one_line

WIDTH = 80
_COMMAND = re.compile(r"`[^`]*`")
_HELD = "\0"
"""Stands for a blank within a command while lines are broken."""


def _width() -> int:
    """Return the width of lines: less than 80 columns only on a narrower terminal."""
    return min(WIDTH, terminal.columns() or WIDTH)


def wrapped(text: str, indent: str = "", below: str = "  ", *, width: int | None = None) -> list[str]:
    """Break a sentence into lines of 80 columns, never within a word, a path or a command in backticks.

    Args:
        text: The sentence; its commands get the name that the user called.
        indent: What stands in front of the first line.
        below: What stands in front of the other lines, beside `indent`.
        width: Another width.

    """
    import textwrap  # noqa: PLC0415 - not every command writes sentences

    width = _width() if width is None else width
    held = _COMMAND.sub(lambda command: command[0].replace(" ", _HELD), called.renamed(text))
    options = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(held, width, initial_indent=indent, subsequent_indent=indent + below, **options)  # type: ignore[arg-type]
    return [line.replace(_HELD, " ") for line in lines] or [indent.rstrip()]


def fact(text: str, *, indent: str = "", below: str = "  ", width: int | None = None, mark: str = "", **style: Any) -> None:
    """Print a fact: a terminal gets it wrapped between words, a pipe as one line, for programs that search it.

    Args:
        text: The fact, without colours: they would count as width.
        indent: What stands in front of the first line.
        below: What stands in front of the other lines, beside `indent`.
        width: Another width than 80 columns.
        mark: The beginning of the text that gets the style; empty: all of it.
        style: Arguments of `click.style`.

    """
    lines = wrapped(text, indent, below, width=width) if terminal.columns() is not None else [indent + called.renamed(text)]
    for number, line in enumerate(lines):
        part = line.strip() if not mark else mark if number == 0 else ""
        echo(line.replace(part, click.style(part, **style), 1) if part and style else line)


def fits(sentence: str) -> bool:
    """Return whether a sentence fits one line."""
    return len(called.renamed(sentence)) <= _width()


def say(text: str, command: str = "", *, indent: str = "", below: str = "  ") -> None:
    """Print a sentence in lines of 80 columns; a command to copy stands alone in the last line, whatever its length."""
    command = called.renamed(command)
    if command and len(f"{indent}{text} {command}") <= _width():
        text, command = f"{text} {command}", ""
    for line in wrapped(text, indent, below):
        echo(line)
    if command:
        echo(f"{indent}{below}{command}")


def tell(line: str) -> None:
    """Print a line on stderr behind the program's name; a terminal gets it wrapped between words, a pipe as one line.

    The line may contain foreign text: names of files, or messages of servers.
    """
    line = called.renamed(f"{called.name()}: {one_line(line)}")
    if terminal.is_terminal(sys.stderr):
        line = "\n".join(wrapped(line, width=terminal.error_columns()))
    click.echo(line, err=True)
