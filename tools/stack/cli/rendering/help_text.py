# SPDX-License-Identifier: Apache-2.0
"""Help texts whose lines are not broken at hyphens: names of recipes and options are to be copied."""

import click

_HELD = "\x01"
"""Stands for a hyphen while lines are broken; Python's textwrap takes the true one for the end of a word."""


class HelpFormatter(click.HelpFormatter):
    """click's formatter, which breaks lines between words only."""

    def write(self, string: str) -> None:
        """Write lines that are broken already."""
        super().write(string.replace(_HELD, "-"))

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _HELD))

    def write_dl(self, rows: "list[tuple[str, str]]", col_max: int = 30, col_spacing: int = 2) -> None:  # type: ignore[override]
        """Write options or commands with their texts."""
        super().write_dl([(name, text.replace("-", _HELD)) for name, text in rows], col_max, col_spacing)


def use() -> None:
    """Let all commands write their help with it."""
    click.Context.formatter_class = HelpFormatter
