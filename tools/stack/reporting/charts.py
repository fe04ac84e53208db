# SPDX-License-Identifier: Apache-2.0
"""Draw curves and bars as SVG elements. Each has a title; the page adds a table with the same numbers."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from stack.reporting.elements import element
from stack.reporting.report import Point

_WIDTH, _HEIGHT = 440, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 12, 28
_DAY = 86400


def curve(points: Sequence[Point], *, until: int, name: str) -> Element:
    """Draw the lines that a stack carried, as steps from the first point to `until`."""
    begin, end = points[0].when, max(until, points[-1].when, points[0].when + _DAY)
    ticks = _ticks(max(point.lines for point in points))
    top = ticks[-1] or 1

    def across(when: float) -> float:
        return round(_LEFT + (when - begin) / (end - begin) * (_WIDTH - _LEFT - _RIGHT), 1)

    def down(lines: float) -> float:
        return round(_HEIGHT - _BOTTOM - lines / top * (_HEIGHT - _TOP - _BOTTOM), 1)

    steps = f"M{across(begin)},{down(points[0].lines)}"
    for point in points[1:]:
        steps += f"H{across(point.when)}V{down(point.lines)}"
    steps += f"H{across(end)}"
    floor = down(0)
    return element(
        "svg",
        element("title", name),
        *(_grid(down(tick), f"{tick:,}") for tick in ticks),
        element("path", d=f"{steps}V{floor}H{across(begin)}Z", class_="area"),
        element("path", d=steps, class_="curve"),
        *(_date(across(when), when, begin, end) for when in _dates(begin, end)),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=name,
        class_="chart",
    )


def bars(rows: Sequence[tuple[str, int]], *, name: str) -> Element:
    """Draw one horizontal bar for each name and number."""
    most = max((number for _, number in rows), default=0) or 1
    left, height = 120, 26
    drawn: list[Element] = []
    for place, (label, number) in enumerate(rows):
        middle = place * height + height / 2
        width = number / most * (_WIDTH - left - 44)
        drawn.append(element("text", label, x=left - 8, y=middle + 4.5, text_anchor="end", class_="tick"))
        if number:
            drawn.append(element("rect", x=left, y=middle - 8, width=round(width, 1), height=16, rx=2, class_="bar"))
        drawn.append(element("text", str(number), x=round(left + width + 6, 1), y=middle + 4.5))
    return element(
        "svg",
        element("title", name),
        *drawn,
        viewBox=f"0 0 {_WIDTH} {len(rows) * height}",
        role="img",
        aria_label=name,
        class_="chart",
    )


def day(when: int) -> str:
    """Return the date of a time in UTC; times that no calendar has are shortened to its ends."""
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=when):%Y-%m-%d}"
    except OverflowError:
        return "unknown"


def _grid(y: float, label: str) -> Element:
    line = element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="axis")
    return element("g", line, element("text", label, x=_LEFT - 6, y=y + 4.5, text_anchor="end", class_="tick"))


def _date(x: float, when: int, begin: int, end: int) -> Element:
    anchor = "start" if when == begin else "end" if when == end else "middle"
    return element("text", day(when), x=x, y=_HEIGHT - 8, text_anchor=anchor, class_="tick")


def _dates(begin: int, end: int) -> tuple[int, ...]:
    """Return the times to label: both ends and, if the days differ, the middle."""
    middle = (begin + end) // 2
    return (begin, middle, end) if len({day(begin), day(middle), day(end)}) == 3 else (begin, end)


def _ticks(most: int) -> tuple[int, ...]:
    """Return up to six round numbers from 0 to at least `most`."""
    if most < 1:
        return (0, 1)
    step = 10 ** math.floor(math.log10(most))
    factor = next(factor for factor in (0.2, 0.25, 0.5, 1, 2) if most <= 5 * factor * step) if step >= 10 else 1
    width = max(1, math.ceil(step * factor))
    return tuple(range(0, most + width, width))
