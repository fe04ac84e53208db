# SPDX-License-Identifier: Apache-2.0
"""Properties of the standard streams: whether a person reads them, how wide they are, colours, and characters."""

import os
import sys
from typing import TextIO

WIDTH = "STACK_COLUMNS"
"""Environment variable: the width of the output, also in a pipe."""
_NARROWEST = 40
_PROSE = 80
"""Columns of wrapped sentences in a pipe, and the most on a wide terminal is half as much again."""


def is_terminal(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default standard output, is a terminal."""
    try:
        return (stream or sys.stdout).isatty()
    except ValueError:  # closed
        return False


def columns() -> int | None:
    """Return the width of tables: STACK_COLUMNS if it is set, else the terminal's; None in a pipe, where nothing is cut."""
    asked = os.environ.get(WIDTH, "")
    if asked.isascii() and asked.isdigit() and int(asked):
        return max(int(asked), _NARROWEST)
    if not is_terminal():
        return None
    import shutil  # noqa: PLC0415 - its archive formats take a hundredth of a second of every command's start

    return max(shutil.get_terminal_size().columns, _NARROWEST)


def error_columns() -> int:
    """Return the width of a terminal that shows standard error, which standard output may not reach."""
    asked = os.environ.get(WIDTH, "")
    if asked.isascii() and asked.isdigit() and int(asked):
        return max(int(asked), _NARROWEST)
    try:
        found = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        found = 0
    return max(found or _PROSE, _NARROWEST)


def prose_columns() -> int:
    """Return the width at which sentences are wrapped."""
    return min(columns() or _PROSE, _PROSE + _PROSE // 2)


def is_coloured(stream: TextIO | None = None) -> bool:
    """Return whether to write colours to a stream, by default standard output.

    NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE and CLICOLOR decide in this order, then TERM=dumb, then whether it is a terminal.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    if os.environ.get("CLICOLOR") == "0" or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    return is_terminal(stream)


def colours() -> bool | None:
    """Return click's setting: no colours at all, or colours also in a pipe; None: click decides for each stream."""
    coloured = is_coloured()
    return None if coloured and is_terminal() else coloured


def has_unicode(stream: TextIO | None = None) -> bool:
    """Return whether a stream, by default standard output, can show characters beyond ASCII."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").startswith("utf")


def ellipsis() -> str:
    """Return the sign for omitted text."""
    return "…" if has_unicode() else "..."
