# SPDX-License-Identifier: Apache-2.0
"""Print sentences that are read at 80 columns, on a terminal and in a pipe; a narrower terminal gets shorter lines."""

import re

from stack.cli.rendering import terminal
from stack.cli.rendering.text import echo

WIDTH = 80
_COMMAND = re.compile(r"`[^`]*`")
_HELD = "\0"
"""Stands for a blank within a command while lines are broken."""


def _width() -> int:
    """Return the width of lines: less than 80 columns only on a narrower terminal."""
    return min(WIDTH, terminal.columns() or WIDTH)


def wrapped(text: str, indent: str = "", below: str = "  ") -> list[str]:
    """Break a sentence into lines of 80 columns, never within a word, a path or a command in backticks.

    Args:
        text: The sentence.
        indent: What stands in front of the first line.
        below: What stands in front of the other lines, beside `indent`.

    """
    import textwrap  # noqa: PLC0415 - not every command writes sentences

    held = _COMMAND.sub(lambda command: command[0].replace(" ", _HELD), text)
    options = {"break_long_words": False, "break_on_hyphens": False}
    lines = textwrap.wrap(held, _width(), initial_indent=indent, subsequent_indent=indent + below, **options)  # type: ignore[arg-type]
    return [line.replace(_HELD, " ") for line in lines] or [indent.rstrip()]


def say(text: str, command: str = "", *, indent: str = "", below: str = "  ") -> None:
    """Print a sentence in lines of 80 columns; a command to copy stands alone in the last line, whatever its length."""
    if command and len(f"{indent}{text} {command}") <= _width():
        text, command = f"{text} {command}", ""
    for line in wrapped(text, indent, below):
        echo(line)
    if command:
        echo(f"{indent}{below}{command}")
