# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal: names lose their middle, sentences are wrapped between words; in a pipe nothing is cut."""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from stack.cli.rendering import settings, terminal, text

_GAPS = (3, 2)
"""Columns between two cells, and where room is scarce."""
_RULE = 180
"""Characters of a table's longest horizontal line in a pipe."""
_SENTENCE = 20
"""Columns that a wrapped sentence needs."""
_NAME = 14
"""Columns to which a name is shortened at most."""

Row = Sequence[str]
Colour = Callable[[str], str | None]


def print_table(header: Sequence[str], rows: Sequence[Row], *, colour: Colour = lambda _: None) -> None:
    """Print a table as wide as the terminal, but never cut in a pipe. `colour` returns a style for a cell's text.

    The last column may hold sentences, which are wrapped. Other columns are shortened in their middle, unless the user asked for
    `-v`. If even that does not fit, each row becomes a few lines of its own.
    """
    safe = [[_lines(cell) for cell in row] for row in rows]
    columns = terminal.columns()
    fitted = ((gap, _fitted([list(header), *safe], columns, gap)) for gap in _GAPS)
    gap, widths = next(((gap, widths) for gap, widths in fitted if widths is not None), (0, None))
    if widths is None:
        _print_blocks(header, safe, colour)
        return
    text.echo(_line(list(header), widths, gap, lambda _: "bold").rstrip())
    rule = "─" if terminal.has_unicode() else "-"
    text.echo(rule * min(sum(widths) + gap * (len(widths) - 1), columns or _RULE))
    for row in safe:
        for line in _wrapped(row, widths):
            text.echo(_line(line, widths, gap, colour).rstrip())


def _fitted(rows: Sequence[Row], columns: int | None, gap: int) -> list[int] | None:
    """Return the columns' widths; None if the table cannot be made narrow enough."""
    natural = [
        max((cell_len(part) for row in rows for part in row[place].split("\n")), default=0) for place in range(len(rows[0]))
    ]
    if columns is None or sum(natural) + gap * (len(natural) - 1) <= columns:
        return natural
    room = columns - gap * (len(natural) - 1)
    widths = list(natural)
    last = len(widths) - 1
    widths[last] = min(natural[last], max(_SENTENCE, room - sum(natural[:-1])))
    headers = [cell_len(cell) for cell in rows[0]]
    while sum(widths) > room and not settings.current().verbose:
        # The widest names give way first.
        place = max(range(last), key=lambda place: widths[place], default=last)
        if widths[place] <= max(_NAME, headers[place]):
            return None
        widths[place] -= 1
    return widths if sum(widths) <= room else None


def _wrapped(row: Row, widths: Sequence[int]) -> Iterator[list[str]]:
    """Yield the lines of one row."""
    cells = [
        [text.shortened(part, width) if cell_len(part) > width else part for part in cell.split("\n")]
        for cell, width in zip(row[:-1], widths, strict=False)
    ]
    sentences = [line for part in row[-1].split("\n") for line in wrap(part, widths[-1]) or [""]] if row else []
    cells.append(sentences)
    for place in range(max(map(len, cells), default=0)):
        yield [cell[place] if place < len(cell) else "" for cell in cells]


def wrap(sentence: str, width: int) -> list[str]:
    """Wrap a sentence between words; a word that is too long, such as a path, is broken after one of its separators."""
    if cell_len(sentence) <= width:
        return [sentence]
    lines: list[str] = []
    indent = sentence[: len(sentence) - len(sentence.lstrip())]
    for line in textwrap.wrap(sentence, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False):
        while cell_len(line) > width:
            cut = max((match.end() for match in re.finditer(r"[/_.,:;=-]", line[:width])), default=width)
            lines.append(line[:cut])
            line = indent + line[cut:]  # noqa: PLW2901 - the rest of the line
        lines.append(line)
    return lines


def _line(cells: Row, widths: Sequence[int], gap: int, colour: Colour) -> str:
    padded = [(cell, set_cell_size(cell, width)) for cell, width in zip(cells, widths, strict=False)]
    return (" " * gap).join(text.styled(cell, colour(cell) or "") + shown[len(cell) :] for cell, shown in padded)


def _print_blocks(header: Sequence[str], rows: Sequence[Row], colour: Colour) -> None:
    """Print each row as its first cell and, indented, its other cells with their headings."""
    columns = terminal.columns() or _RULE
    for row in rows:
        first, *rest = row
        for line in wrap(first, columns) if first else ():
            text.echo(text.styled(line, colour(first) or "bold"))
        for name, cell in zip(header[1:], rest, strict=False):
            lead = f"  {name}: " if name else "  "
            for line in wrap(f"{lead}{cell}", columns) if cell else ():
                text.echo(text.styled(line, colour(cell) or ""))


def _lines(cell: str) -> str:
    return "\n".join(text.one_line(line) for line in cell.split("\n"))
