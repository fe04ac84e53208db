# SPDX-License-Identifier: Apache-2.0
"""Draw which series needs which: one column for each topological level, what is needed on the left."""

from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from xml.etree.ElementTree import Element

from stack.base.text import shortened
from stack.reporting.elements import element
from stack.reporting.report import SeriesLine

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _EDGE = 176, 44, 64, 16, 6
_LETTERS = 22


def draw(series: Sequence[SeriesLine], labels: Mapping[str, str]) -> Element | None:
    """Draw the series that need others or are needed; None if there are none.

    `labels` has a second line of text for each series.
    """
    columns = levels(series)
    if not columns:
        return None
    places = {
        name: (_EDGE + column * (_WIDTH + _ACROSS), _EDGE + row * (_HEIGHT + _DOWN))
        for column, names in enumerate(columns)
        for row, name in enumerate(names)
    }
    known = {each.name: each for each in series}
    needs = [(needed, name) for name in places for needed in needed_directly(series)[name]]
    width = len(columns) * (_WIDTH + _ACROSS) - _ACROSS + 2 * _EDGE
    height = max(map(len, columns)) * (_HEIGHT + _DOWN) - _DOWN + 2 * _EDGE
    return element(
        "svg",
        element("title", "Which series needs which"),
        *(_arrow(places[needed], places[name]) for needed, name in needs),
        *(_box(known[name], place, labels.get(name, "")) for name, place in places.items()),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=f"Which series needs which: {len(places)} series, {len(needs)} arrows. The table below has the same.",
    )


def levels(series: Sequence[SeriesLine]) -> list[list[str]]:
    """Return the series that need others or are needed, by topological level, ordered so that arrows cross little."""
    needs = needed_directly(series)
    linked = {name for name, its in needs.items() if its} | {needed for its in needs.values() for needed in its}
    level: dict[str, int] = {}
    for name in TopologicalSorter(needs).static_order():
        level[name] = 1 + max((level[needed] for needed in needs[name]), default=-1)
    columns: list[list[str]] = [[] for _ in range(1 + max((level[name] for name in linked), default=-1))]
    for name in [each.name for each in series if each.name in linked]:
        columns[level[name]].append(name)
    rows = {name: float(row) for row, name in enumerate(columns[0])} if columns else {}
    for column in columns[1:]:
        column.sort(key=lambda name: sum(rows[needed] for needed in needs[name]) / len(needs[name]))
        rows |= {name: float(row) for row, name in enumerate(column)}
    return columns


def needed_directly(series: Sequence[SeriesLine]) -> dict[str, tuple[str, ...]]:
    """Return the transitive reduction: leave out what a series needs anyway through another one that it needs."""
    known = {each.name: [needed for needed in each.needs if needed != each.name] for each in series}
    needs = {name: [needed for needed in its if needed in known] for name, its in known.items()}
    below: dict[str, set[str]] = {}
    for name in TopologicalSorter(needs).static_order():
        below[name] = set(needs[name]).union(*(below[needed] for needed in needs[name]))
    return {
        name: tuple(needed for needed in its if not any(needed in below[other] for other in its)) for name, its in needs.items()
    }


def _box(series: SeriesLine, place: tuple[int, int], label: str) -> Element:
    x, y = place
    middle = x + _WIDTH // 2
    return element(
        "g",
        element("title", f"{series.name}: {series.title}"),
        element(
            "rect", x=x, y=y, width=_WIDTH, height=_HEIGHT, rx=5, class_="box merged" if series.state == "merged" else "box"
        ),
        element("text", shortened(series.name, _LETTERS), x=middle, y=y + 19, text_anchor="middle", class_="strong"),
        element("text", shortened(label, _LETTERS + 4), x=middle, y=y + 35, text_anchor="middle", class_="tick"),
    )


def _arrow(needed: tuple[int, int], needing: tuple[int, int]) -> Element:
    """Draw an arrow from the right side of a needed series to the left side of one that needs it."""
    x1, y1 = needed[0] + _WIDTH, needed[1] + _HEIGHT // 2
    x2, y2 = needing[0], needing[1] + _HEIGHT // 2
    bend = x1 + _ACROSS // 2
    path = element("path", d=f"M{x1},{y1}C{bend},{y1} {x2 - _ACROSS // 2},{y2} {x2 - 8},{y2}", class_="edge")
    return element("g", path, element("path", d=f"M{x2},{y2}l-9,-4.5v9z", class_="head"))
