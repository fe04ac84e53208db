# SPDX-License-Identifier: Apache-2.0
"""Print rooflines in 80 columns: tables of numbers, and sources as numbered notes below them; and as JSON."""

from collections.abc import Sequence
from pathlib import Path

import click

from stack.cli.common import print_table
from stack.cli.rendering.text import one_line
from stack.cli.sentences import fact, say
from stack.deploy.hardware import Profile
from stack.serving import contradictions
from stack.serving.measured import Measured
from stack.serving.roofline import Point, Roofline


def show(rooflines: Sequence[Roofline], *, steps: bool) -> None:
    """Print the components and limits of rooflines, the measured speeds, and with `steps` the changes."""
    for each in rooflines:
        _print_components(each)
    _print_limits(rooflines)
    _print_measured(rooflines)
    for each in rooflines if steps else ():
        _print_steps(each)
    against = [entry for each in rooflines for entry in contradictions.found(each, steps=steps)]
    if against:
        click.echo()
    for entry in against:
        say(one_line(entry.words))


def _print_components(drawn: Roofline) -> None:
    """Print a table per number of requests: weights are the same for any context, the cache is not."""
    for batch in dict.fromkeys(point.batch for point in drawn.points):
        points = [point for point in drawn.points if point.batch == batch]
        together = "" if batch == 1 else f", {batch} requests at once"
        name = f"{drawn.recipe.name}: {drawn.model}" if drawn.recipe.name else drawn.model
        fact(one_line(f"{name} on {_where(drawn.machine, drawn.nodes)}{together}"))
        if drawn.speculation is not None:
            spoken = drawn.speculation
            fact(
                f"{spoken.drafts} drafts a step, each accepted with {spoken.acceptance:.0%}: "
                f"{spoken.tokens:.2f} tokens a step and request"
            )
        for note in drawn.remarks:
            fact(f"note: {note}")
        *weights, _ = points[0].components
        rows = [
            (part.name, part.form, *_cost(part.size, points[0]), *(f"{part.size / point.size:.1%}" for point in points))
            for part in weights
        ]
        for place, point in enumerate(points):
            cache = point.components[-1]
            shares = ["" for _ in points]
            shares[place] = f"{cache.size / point.size:.1%}"
            rows.append((f"{cache.name}, {point.context}", cache.form, *_cost(cache.size, point), *shares))
        print_table(("component", "format", "GB", "ms", *(f"of {point.context}" for point in points)), rows)
        click.echo()


def _name(one: Roofline) -> str:
    """Name a roofline in a table: by its recipe, or the last part of its file's path."""
    return one.recipe.name or Path(one.model).name


def _where(machine: Profile, nodes: int) -> str:
    sheet = "" if machine.sheet is None else f"; the data sheet says {machine.sheet:g}"
    bandwidth = f"{machine.bandwidth:g} GB/s ({machine.source}{sheet})"
    if nodes == 1:
        return f"{machine.title}, {bandwidth}"
    return f"{nodes} x {machine.title}, each {bandwidth}; sizes are of one node, the network costs nothing"


def _print_limits(rooflines: Sequence[Roofline]) -> None:
    sheets = {each.machine.sheet for each in rooflines} - {None}
    rows = []
    for each in rooflines:
        for point in each.points:
            sheet = () if not sheets else ("" if point.sheet_limit is None else f"{point.sheet_limit:.1f}",)
            start = (_name(each), str(point.context), str(point.batch))
            rows.append((*start, *_cost(point.size, point), f"{point.limit:.1f}", *sheet))
    beside = () if not sheets else (f"at {sheets.pop():g}" if len(sheets) == 1 else "data sheet",)
    name = "recipe" if any(each.recipe.name for each in rooflines) else "model"
    print_table((name, "context", "requests", "GB", "ms", "at most", *beside), rows)
    say(" ".join(["At most: tokens a second of all requests together.", *_beside_words(beside)]))


def _beside_words(beside: Sequence[str]) -> Sequence[str]:
    return [f"{beside[0].capitalize()}: with the data sheet's GB/s."] if beside else []


def _print_measured(rooflines: Sequence[Roofline]) -> None:
    notes: dict[str, int] = {}
    rows = []
    for each in rooflines:
        for place, point in enumerate(each.points):
            for speed in point.measured:
                if speed.context is None and place:
                    continue
                number = notes.setdefault(_source(speed), len(notes) + 1)
                above = " above the limit" if speed.decode > point.limit else ""
                share = f"{speed.decode / point.limit:.0%}{above}"
                rows.append((each.recipe.name, str(point.context), f"{speed.decode:.1f}", share, f"[{number}]"))
    if not rows:
        return
    click.echo()
    print_table(("recipe", "context", "measured", "of that", "by"), rows)
    for note, number in notes.items():
        say(f"[{number}] {note}", below="    ")
    say("Others measured with formats of their own, unless they say these.")


def _print_steps(one: Roofline) -> None:
    if not one.steps:
        fact(f"{one_line(_name(one))}: no steps, which are known for gpt-oss without drafts only")
        return
    batch = one.steps[0].points[0].batch
    together = "" if batch == 1 else f", {batch} requests at once"
    click.echo()
    fact(f"{one_line(_name(one))}, one change at a time{together}: tokens a second at most")
    first, _, of_first = one.steps[0].title.partition(": ")
    rows = [
        (
            first if place == 0 else f"+ {step.title}",
            *_cost(step.points[0].weights, step.points[0]),
            f"{batch * step.points[0].bandwidth / step.points[0].weights:.1f}",
            *(f"{point.limit:.1f}" for point in step.points),
        )
        for place, step in enumerate(one.steps)
    ]
    print_table(("", "GB", "ms", "weights", *(f"at {point.context}" for point in one.steps[0].points)), rows)
    say(f"{first.capitalize()}: {of_first}. GB, ms and the column weights are without the KV cache.")


def _cost(size: float, point: Point) -> tuple[str, str]:
    return f"{size / 1e9:.3f}", f"{size / point.bandwidth * 1e3:.2f}"


def _source(one: Measured) -> str:
    stated = "" if one.context is not None else " (context not stated)"
    return f"{one.source}{stated}{', these formats' if one.alike else ''}"


def as_json(one: Roofline, *, steps: bool) -> dict[str, object]:
    """Convert a roofline for `--json`."""
    spoken = one.speculation
    return {
        "recipe": one.recipe.name or None,
        "model": one.model,
        "hardware": one.machine.name,
        "bandwidth": one.machine.bandwidth * 1e9,
        "bandwidth_source": one.machine.source,
        "sheet_bandwidth": None if one.machine.sheet is None else one.machine.sheet * 1e9,
        "nodes": one.nodes,
        "moe": one.moe,
        "drafts": None
        if spoken is None
        else {
            "count": spoken.drafts,
            "acceptance": spoken.acceptance,
            "tokens": spoken.tokens,
            "counted": spoken.counted,
        },
        "notes": list(one.remarks),
        "weights": one.weights,
        "memory": one.machine.memory * 1e9,
        "fits": one.fits,
        "points": [_point_json(point) for point in one.points],
        "steps": [
            {"title": step.title, "weights": step.points[0].weights, "points": [_point_json(point) for point in step.points]}
            for step in one.steps
        ]
        if steps and one.steps
        else None,
        "contradictions": [
            {
                "decode": each.speed.decode,
                "source": each.speed.source,
                "limit": each.point.limit,
                "sheet_limit": each.point.sheet_limit,
                "of": each.of,
            }
            for each in contradictions.found(one, steps=steps)
        ],
    }


def _point_json(point: Point) -> dict[str, object]:
    return {
        "context": point.context,
        "batch": point.batch,
        "bytes": point.size,
        "seconds": point.seconds,
        "tokens": point.tokens,
        "limit": point.limit,
        "sheet_limit": point.sheet_limit,
        "components": [
            {"name": part.name, "format": part.form, "bytes": part.size, "seconds": part.size / point.bandwidth}
            for part in point.components
        ],
        "measured": [
            {
                "context": each.context,
                "decode": each.decode,
                "share": each.decode / point.limit,
                "above": each.decode > point.limit,
                "source": each.source,
                "alike": each.alike,
            }
            for each in point.measured
        ],
    }
