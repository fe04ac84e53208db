# SPDX-License-Identifier: Apache-2.0
"""Rooflines as a picture: what a token costs at least, a bar a configuration, beside what was measured."""

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
"""Okabe and Ito's, which colour-blind people tell apart."""
_MARKERS = "ovs^DPX*<>"
_BAR = 0.36
"""Inches that a bar and its gap take."""
_SOURCE = 0.175
"""Inches that a line of the legend of sources takes."""


@dataclass(frozen=True, slots=True)
class _Bar:
    title: str
    point: Point


def draw(found: Sequence[Roofline], file: Path, *, steps: bool = False) -> None:
    """Draw rooflines into a file, PNG or SVG by its suffix: the same bytes each time.

    Raises:
        StackError: the suffix is another one, matplotlib is missing, or the file cannot be written.

    """
    if file.suffix not in (".png", ".svg"):
        raise StackError(f"{file} is neither .png nor .svg", "name a file that is")
    try:
        import matplotlib as mpl  # noqa: PLC0415
    except ImportError as missing:
        raise StackError("drawing needs matplotlib", "pip install matplotlib, or leave --png out") from missing
    varying = "Software" if file.suffix == ".png" else "Date"
    # Without a salt, the names inside an SVG would be random.
    with mpl.rc_context({"svg.hashsalt": "stack", "svg.fonttype": "none"}):
        try:
            drawn = figure(found, steps=steps)
            drawn.savefig(file, dpi=100, metadata={varying: None, "Description": in_words(found, steps=steps)})
        except OSError as failed:
            raise StackError(f"{file} cannot be written ({failed.strerror})", "name another file") from failed


def figure(found: Sequence[Roofline], *, steps: bool) -> "Figure":
    """The picture: a bar is a context and number of requests of a recipe; with `steps` a change on the way to it, at the first context."""
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
    """What a picture shows, a sentence a bar; it is kept inside the file."""
    return "; ".join(f"{bar.title}: at most {bar.point.limit:.1f} tok/s" for bar in _all(found, steps=steps))


def _all(found: Sequence[Roofline], *, steps: bool) -> list[_Bar]:
    return [bar for one in found for bar in (_steps(one) if steps else _points(one))]


def _points(one: Roofline) -> list[_Bar]:
    return [_Bar(f"{one.recipe.name}, {_requests(point)}", point) for point in one.points]


def _requests(point: Point) -> str:
    return f"{point.context} tokens" if point.batch == 1 else f"{point.batch} requests, {point.context} tokens"


def _steps(one: Roofline) -> list[_Bar]:
    """The last step is the recipe: it has what was measured."""
    bars = [_Bar(step.title, step.points[0]) for step in one.steps]
    return [*bars[:-1], _Bar(f"{bars[-1].title} = {one.recipe.name}", one.points[0])]


def _bars(axes: "Axes", bars: Sequence[_Bar]) -> "list[Artist]":
    """The bars, the limits in a column beside them; returns what the legend names."""
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
    """A marker for each source, on the bars of its context."""
    sources: dict[str, list[tuple[float, int]]] = {}
    for place, bar in enumerate(bars):
        for one in bar.point.measured:
            if one.context is not None:
                sources.setdefault(one.source, []).append((1e3 / one.decode, place))
    drawn: list[Artist] = []
    for place, (source, seen) in enumerate(sources.items()):
        marker = _MARKERS[place % len(_MARKERS)]
        times, rows = zip(*seen, strict=True)
        drawn += axes.plot(
            times, rows, marker, color="black", markerfacecolor="white", markersize=6, label=f"measured: {source}"
        )
    return drawn


def _label(axes: "Axes", found: Sequence[Roofline], bars: Sequence[_Bar], more: str) -> None:
    machines = dict.fromkeys(f"{one.machine.title}, {one.machine.bandwidth:g} GB/s" for one in found)
    axes.set_title(f"What the next token costs at least: {'; '.join(machines)}{more}", loc="right", fontsize=10, pad=30)
    axes.set_xlabel("ms to read all that it needs")
    axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
