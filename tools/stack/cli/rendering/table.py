# SPDX-License-Identifier: Apache-2.0
"""Tables that fit the terminal: names lose their middle, sentences are wrapped between words; in a pipe nothing is cut."""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from stack.cli.rendering import called, settings, terminal, text

_GAPS = (3, 2)
"""Columns between two cells, and where room is scarce."""
_RULE = 180
"""Characters of a table's longest horizontal line in a pipe."""
_SENTENCE = 26
"""Columns that a wrapped sentence needs beside its row."""
_INDENT = "    "
_NAME = 14
"""Columns to which a name is shortened at most."""

Row = Sequence[str]
Colour = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class _Layout:
    """The widths of the columns and the gap between them. `below`: the last column goes to lines of its own."""

    widths: tuple[int, ...]
    gap: int
    below: bool = False

    @property
    def width(self) -> int:
        """The width of the whole table."""
        return sum(self.widths) + self.gap * (len(self.widths) - 1)


def print_table(header: Sequence[str], rows: Sequence[Row], *, colour: Colour = lambda _: None, labelled: bool = False) -> None:
    """Print a table as wide as the terminal, but never cut in a pipe. `colour` returns a style for a cell's text.

    The last column may hold sentences, which are wrapped, or go below their row if little room is left beside it. Then other
    columns are shortened in their middle, unless the user asked for `-v`. If even that does not fit, each row becomes a few lines.
    With `labelled`, a last cell below its row has its heading in front.
    """
    safe = [[*(_lines(cell) for cell in row[:-1]), _lines(called.renamed(row[-1]))] if row else [] for row in rows]
    columns = terminal.columns()
    layout = next(_layouts([list(header), *safe], columns), None)
    if layout is None:
        _print_blocks(header, safe, colour)
        return
    shown = header[: len(layout.widths)]
    label = f"{header[-1]}: " if labelled else ""
    text.echo(_line(shown, layout, lambda _: "bold").rstrip())
    rule = "─" if terminal.has_unicode() else "-"
    text.echo(rule * min(layout.width, columns or _RULE))
    for row in safe:
        for cells in _wrapped(row[: len(shown)], layout):
            if line := _line(cells, layout, colour).rstrip():
                text.echo(line)
        for part in row[-1].split("\n") if layout.below and row[-1] not in ("", "-") else ():
            for sentence in wrap(f"{_INDENT}{label}{part}", columns or _RULE):
                text.echo(text.styled(sentence, colour(part) or ""))


def _layouts(rows: Sequence[Row], columns: int | None) -> Iterator[_Layout]:
    """Yield the layouts that fit, the best one first."""
    natural = tuple(
        max((cell_len(part) for row in rows for part in row[place].split("\n")), default=0) for place in range(len(rows[0]))
    )
    whole = [_Layout(natural, gap) for gap in _GAPS]
    if columns is None:
        yield whole[0]
        return
    yield from (layout for layout in whole if layout.width <= columns)
    first = natural[:-1]
    for gap in _GAPS:
        left = columns - sum(first) - gap * len(first)
        if left >= _SENTENCE:
            yield _Layout((*first, left), gap)
    if not first:
        return
    yield from (layout for layout in (_Layout(first, gap, below=True) for gap in _GAPS) if layout.width <= columns)
    if not settings.current().verbose:
        yield from _shrunk(first, [cell_len(cell) for cell in rows[0]], columns)


def _shrunk(natural: Sequence[int], headers: Sequence[int], columns: int) -> Iterator[_Layout]:
    """Yield the layout whose widest columns are shortened; yield nothing if they would be too narrow."""
    gap, widths = _GAPS[-1], list(natural)
    while sum(widths) + gap * (len(widths) - 1) > columns:
        place = max(range(len(widths)), key=lambda place: widths[place])
        if widths[place] <= max(_NAME, headers[place]):
            return
        widths[place] -= 1
    yield _Layout(tuple(widths), gap, below=True)


def _wrapped(row: Row, layout: _Layout) -> Iterator[list[str]]:
    """Yield the lines of one row."""
    names = row if layout.below else row[:-1]
    cells = [
        [text.shortened(part, width) if cell_len(part) > width else part for part in cell.split("\n")]
        for cell, width in zip(names, layout.widths, strict=False)
    ]
    if not layout.below:
        cells.append([line for part in row[-1].split("\n") for line in _last(part, layout.widths[-1])])
    for place in range(max(map(len, cells), default=0)):
        yield [cell[place] if place < len(cell) else "" for cell in cells]


def _last(cell: str, width: int) -> list[str]:
    """Return the lines of a last cell: a sentence is wrapped, and a single word, such as a hash, is shortened."""
    if cell_len(cell) > width and " " not in cell and not settings.current().verbose:
        return [text.shortened(cell, width)]
    return wrap(cell, width) or [""]


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


def _line(cells: Row, layout: _Layout, colour: Colour) -> str:
    padded = [(cell, set_cell_size(cell, width)) for cell, width in zip(cells, layout.widths, strict=False)]
    return (" " * layout.gap).join(text.styled(cell, colour(cell) or "") + shown[len(cell) :] for cell, shown in padded)


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
