# SPDX-License-Identifier: Apache-2.0
"""Draw rooflines: a bar per configuration shows the least time for a token, next to measured speeds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stack.base.errors import StackError
from stack.serving import contradictions
from stack.serving.measured import Measured
from stack.serving.roofline import Point, Roofline

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = {
    "experts": "#0072b2",
    "shared experts": "#80b8d8",
    "MLP": "#0072b2",
    "qkv": "#e69f00",
    "attention": "#e69f00",
    "linear attention": "#f3cf80",
    "Mamba": "#f3cf80",
    "o": "#f0e442",
    "lm_head": "#009e73",
    "router": "#d55e00",
    "drafts": "#cc79a7",
    "state": "#bbbbbb",
    "KV": "#56b4e9",
}
"""Components in the order of the bars, in the palette of Okabe and Ito, for colour-blind people; no model has two of one colour."""
_MARKERS = "ovs^DPX*<>"
_BAR = 0.36
"""Inches for a bar and its gap."""
_SOURCE = 0.175
"""Inches for a line in the legend of sources."""
_DOTS = 88
"""Dots per inch of a PNG."""
_ENTRIES = 6
"""Components in a line of the legend."""
_BETWEEN = ";\n"
"""Between two machines in the title."""
_WRONG = "\n        above a limit that is shown: one of both is wrong"


@dataclass(frozen=True, slots=True)
class _Bar:
    title: str
    point: Point
    measured: tuple[Measured, ...]


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
            metadata = {varying: None, "Description": in_words(found, steps=steps)}
            drawn.savefig(file, dpi=_DOTS, metadata=metadata)
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
        speeds = _speeds(axes, bars, {each.speed.source for each in _against(found, steps=steps)})
        _label(axes, found, bars, f"; {_requests(bars[0].point)} of context" if steps else "")
        drawn.legend(handles=parts, loc="outside upper right", ncols=min(len(parts), _ENTRIES), frameon=False)
        if speeds:
            lines = sum(1 + str(entry.get_label()).count("\n") for entry in speeds)
            drawn.set_figheight(drawn.get_figheight() + _SOURCE * lines)
            drawn.legend(handles=speeds, loc="outside lower left", frameon=False, fontsize=8)
    return drawn


def in_words(found: Sequence[Roofline], *, steps: bool) -> str:
    """Describe a figure, one sentence per bar and per contradiction; the description is stored in the file."""
    bars = (f"{bar.title}: at most {bar.point.limit:.1f} tok/s" for bar in _all(found, steps=steps))
    return "; ".join((*bars, *(each.words for each in _against(found, steps=steps))))


def _against(found: Sequence[Roofline], *, steps: bool) -> list[contradictions.Contradiction]:
    return [each for roofline in found for each in contradictions.found(roofline, steps=steps)]


def _all(found: Sequence[Roofline], *, steps: bool) -> list[_Bar]:
    return [bar for roofline in found for bar in (_steps(roofline) if steps else _points(roofline))]


def _points(roofline: Roofline) -> list[_Bar]:
    return [_Bar(f"{_name(roofline)}, {_requests(point)}", point, _stated(point)) for point in roofline.points]


def _stated(point: Point) -> tuple[Measured, ...]:
    """Return the speeds whose context is known, and those that contradict the limit."""
    return tuple(speed for speed in point.measured if speed.context is not None or speed.decode > point.limit)


def _name(roofline: Roofline) -> str:
    """Name a roofline; matplotlib takes dollar signs for mathematics."""
    return roofline.recipe.name or Path(roofline.model).name.replace("$", r"\$")


def _requests(point: Point) -> str:
    return f"{point.context} tokens" if point.batch == 1 else f"{point.batch} requests, {point.context} tokens"


def _steps(roofline: Roofline) -> list[_Bar]:
    """Make the bars of the changes; the last one is the recipe itself. Speeds above the release's limit stand on its bar, the first one."""
    if not roofline.steps:
        return _points(roofline)
    bars = [_Bar(step.title, step.points[0], ()) for step in roofline.steps]
    wrong = tuple(each.speed for each in _against([roofline], steps=True) if each.speed.released)
    last = roofline.points[0]
    bars[-1] = _Bar(f"{bars[-1].title} = {_name(roofline)}", last, _stated(last))
    return [replace(bars[0], measured=(*wrong, *(speed for speed in bars[0].measured if speed not in wrong))), *bars[1:]]


def _bars(axes: "Axes", bars: Sequence[_Bar]) -> "list[Artist]":
    """Draw the bars, with the limits in a column next to them; return the entries of the legend."""
    drawn: list[Artist] = []
    places = range(len(bars))
    starts = [0.0] * len(bars)
    present = {part.name for bar in bars for part in bar.point.components}
    for name, colour in _COLOURS.items():
        if name not in present:
            continue
        widths = [
            sum(part.size for part in bar.point.components if part.name == name) / bar.point.bandwidth * 1e3 for bar in bars
        ]
        made = axes.barh(places, widths, 0.66, starts, label=name, color=colour, edgecolor="black", linewidth=0.5)
        drawn.append(made.patches[0])
        made.patches[0].set_label(name)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    for place, bar in zip(places, bars, strict=True):
        axes.text(1.01, place, f"{bar.point.limit:.1f}", va="center", transform=axes.get_yaxis_transform())
    axes.annotate("tok/s\nat most", (1.01, 1), (0, 4), "axes fraction", "offset points", annotation_clip=False)
    return drawn


def _speeds(axes: "Axes", bars: Sequence[_Bar], wrong: set[str]) -> "list[Artist]":
    """Draw a marker for each source, on the bars of its context; `wrong`: sources of speeds above a limit that is shown."""
    sources: dict[str, list[tuple[float, int]]] = {}
    for place, bar in enumerate(bars):
        for speed in bar.measured:
            sources.setdefault(speed.source, []).append((1e3 / speed.decode, place))
    drawn: list[Artist] = []
    for place, (source, seen) in enumerate(sources.items()):
        marker = _MARKERS[place % len(_MARKERS)]
        times, rows = zip(*seen, strict=True)
        said = f"measured: {source}{_WRONG if source in wrong else ''}"
        fill = "#d55e00" if source in wrong else "white"
        drawn += axes.plot(times, rows, marker, color="black", markerfacecolor=fill, markersize=6, label=said)
    return drawn


def _measured(roofline: Roofline) -> str:
    sheet = roofline.machine.sheet
    return "" if sheet is None else f" (data sheet: {sheet:g})"


def _label(axes: "Axes", found: Sequence[Roofline], bars: Sequence[_Bar], more: str) -> None:
    machines = dict.fromkeys(
        f"{roofline.machine.title}, {roofline.machine.bandwidth:g} GB/s{_measured(roofline)}" for roofline in found
    )
    axes.set_title(f"What the next token costs at least: {_BETWEEN.join(machines)}{more}", loc="right", fontsize=10, pad=30)
    axes.set_xlabel("ms to read all that it needs")
    axes.set_yticks(range(len(bars)), [bar.title for bar in bars])
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
