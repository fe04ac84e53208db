# SPDX-License-Identifier: Apache-2.0
"""Draw rooflines: a bar per configuration shows the least time for a token, next to measured speeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stack.base.errors import StackError
from stack.serving.roofline import Point, Roofline
from stack.serving.traffic import COMPONENTS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = dict(zip(COMPONENTS, ("#0072b2", "#e69f00", "#f0e442", "#009e73", "#d55e00", "#56b4e9"), strict=True))
"""Palette of Okabe and Ito, for colour-blind people."""
_MARKERS = "ovs^DPX*<>"
_BAR = 0.36
"""Inches for a bar and its gap."""
_SOURCE = 0.175
"""Inches for a line in the legend of sources."""


@dataclass(frozen=True, slots=True)
class _Bar:
    title: str
    point: Point


def draw(found: Sequence[Roofline], file: Path, *, steps: bool = False) -> None:
    """Draw rooflines into a PNG or SVG file, by its suffix; the same input gives the same bytes.

    Raises:
        StackError: the file has another suffix or cannot be written, or matplotlib is missing.

    """
    if file.suffix not in (".png", ".svg"):
        raise StackError(f"{file} is neither .png nor .svg", "name a file with one of these suffixes")
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ImportError as missing:
        raise StackError("drawing needs matplotlib", "pip install matplotlib, or leave --png out") from missing
    varying = "Software" if file.suffix == ".png" else "Date"
    # Without a salt, the names inside of an SVG are random.
    with mpl.rc_context({"svg.hashsalt": "stack", "svg.fonttype": "none"}):
        try:
            drawn = figure(found, steps=steps)
            drawn.savefig(file, dpi=100, metadata={varying: None, "Description": in_words(found, steps=steps)})
        except OSError as failed:
            raise StackError(f"{file} cannot be written ({failed.strerror})", "name another file") from failed


def figure(found: Sequence[Roofline], *, steps: bool) -> "Figure":
    """Make the figure: a bar per recipe, context and number of requests; with `steps`, a bar per change, at the first context."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    bars = _all(found, steps=steps)
    with mpl.rc_context({"font.size": 9}):
        drawn = Figure(figsize=(9.6, 1.5 + _BAR * len(bars)), layout="constrained")
        axes = drawn.add_subplot()
        parts = _bars(axes, bars)
        speeds = _speeds(axes, bars)
        _label(axes, found, bars, f"; {_requests(bars[0].point)} of context" if steps else "")
        drawn.legend(handles=parts, loc="outside upper right", ncols=len(parts), frameon=False)
        if speeds:
            drawn.set_figheight(drawn.get_figheight() + _SOURCE * len(speeds))
            drawn.legend(handles=speeds, loc="outside lower left", frameon=False, fontsize=8)
    return drawn


def in_words(found: Sequence[Roofline], *, steps: bool) -> str:
    """Describe a figure, one sentence per bar; the description is stored in the file."""
    return "; ".join(f"{bar.title}: at most {bar.point.limit:.1f} tok/s" for bar in _all(found, steps=steps))


def _all(found: Sequence[Roofline], *, steps: bool) -> list[_Bar]:
    return [bar for roofline in found for bar in (_steps(roofline) if steps else _points(roofline))]


def _points(roofline: Roofline) -> list[_Bar]:
    return [_Bar(f"{roofline.recipe.name}, {_requests(point)}", point) for point in roofline.points]


def _requests(point: Point) -> str:
    return f"{point.context} tokens" if point.batch == 1 else f"{point.batch} requests, {point.context} tokens"


def _steps(roofline: Roofline) -> list[_Bar]:
    """Make the bars of the changes; the last one is the recipe itself, which has the measured speeds."""
    bars = [_Bar(step.title, step.points[0]) for step in roofline.steps]
    return [*bars[:-1], _Bar(f"{bars[-1].title} = {roofline.recipe.name}", roofline.points[0])]


def _bars(axes: "Axes", bars: Sequence[_Bar]) -> "list[Artist]":
    """Draw the bars, with the limits in a column next to them; return the entries of the legend."""
    drawn: list[Artist] = []
    places = range(len(bars))
    starts = [0.0] * len(bars)
    for name in COMPONENTS:
        widths = [
            next(part.size for part in bar.point.components if part.name == name) / bar.point.bandwidth * 1e3 for bar in bars
        ]
        colour = _COLOURS[name]
        made = axes.barh(places, widths, 0.66, starts, label=name, color=colour, edgecolor="black", linewidth=0.5)
        drawn.append(made.patches[0])
        made.patches[0].set_label(name)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    for place, bar in zip(places, bars, strict=True):
        axes.text(1.01, place, f"{bar.point.limit:.1f}", va="center", transform=axes.get_yaxis_transform())
    axes.annotate("tok/s\nat most", (1.01, 1), (0, 4), "axes fraction", "offset points", annotation_clip=False)
    return drawn


def _speeds(axes: "Axes", bars: Sequence[_Bar]) -> "list[Artist]":
    """Draw a marker for each source, on the bars of its context."""
    sources: dict[str, list[tuple[float, int]]] = {}
    for place, bar in enumerate(bars):
        for speed in bar.point.measured:
            if speed.context is not None:
                sources.setdefault(speed.source, []).append((1e3 / speed.decode, place))
    drawn: list[Artist] = []
    for place, (source, seen) in enumerate(sources.items()):
        marker = _MARKERS[place % len(_MARKERS)]
        times, rows = zip(*seen, strict=True)
        drawn += axes.plot(
            times, rows, marker, color="black", markerfacecolor="white", markersize=6, label=f"measured: {source}"
        )
    return drawn


def _label(axes: "Axes", found: Sequence[Roofline], bars: Sequence[_Bar], more: str) -> None:
    machines = dict.fromkeys(f"{roofline.machine.title}, {roofline.machine.bandwidth:g} GB/s" for roofline in found)
    axes.set_title(f"What the next token costs at least: {'; '.join(machines)}{more}", loc="right", fontsize=10, pad=30)
    axes.set_xlabel("ms to read all that it needs")
    axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
