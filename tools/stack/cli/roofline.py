# SPDX-License-Identifier: Apache-2.0
"""`stack roofline`: compute a recipe's highest possible speed from the bytes that memory must deliver per token."""

from collections.abc import Sequence
from pathlib import Path

import click

from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.completing import complete_recipes
from stack.cli.doctor_rules import root_of
from stack.cli.sentences import fact, say
from stack.deploy import recipes as known
from stack.deploy.hardware import Profile
from stack.serving import plot as drawing
from stack.serving import roofline
from stack.serving.measured import Measured
from stack.serving.roofline import Point, Roofline


@click.command("roofline")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...", shell_complete=complete_recipes)
@click.option("--hardware", metavar="NAME", help="A machine other than the recipe's, such as spark or h200.")
@click.option(
    "--context", "contexts", multiple=True, type=int, metavar="N", help="Tokens of context. Default: 512, 2048, 8192."
)
@click.option("--batch", "batches", multiple=True, type=int, metavar="M", help="Number of concurrent requests. Default: 1.")
@click.option("--config", type=click.Path(path_type=Path), help="The config.json of a gpt-oss other than the recipe's.")
@click.option(
    "--bandwidth", type=float, metavar="GB/s", help="Memory bandwidth in 10^9 bytes per second. Default: the data sheet's."
)
@click.option(
    "--steps",
    is_flag=True,
    help="Also show intermediate steps: the pinned release, then one format or padding change at a time.",
)
@click.option(
    "--png",
    "plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw a figure; an SVG if FILE ends in .svg. Needs matplotlib (the extra `plot`).",
)
@json_option
@click.pass_obj
def command(
    options: Options,
    recipes: tuple[str, ...],
    hardware: str | None,
    contexts: tuple[int, ...],
    batches: tuple[int, ...],
    config: Path | None,
    bandwidth: float | None,
    steps: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compute the tokens per second that memory allows for RECIPEs, by component, and show measured speeds.

    Every byte that a token needs is assumed to be read once, at full bandwidth. Computing, launches and the network between nodes are
    assumed to cost nothing, so a server can only be slower. With concurrent requests, each token's experts are assumed to be
    random. Measured speeds may have used other formats.
    """

    root = root_of(options)
    rooflines = [
        roofline.of(
            recipe,
            roofline.machine(recipe, hardware, bandwidth),
            contexts=contexts or roofline.CONTEXTS,
            batches=batches or (1,),
            config=config,
        )
        for recipe in (known.load(name, root) for name in dict.fromkeys(recipes))
    ]
    if plot is not None:
        drawing.draw(rooflines, plot, steps=steps)
    if as_json:
        print_json({"rooflines": [_json(each, steps=steps) for each in rooflines]})
        return
    for each in rooflines:
        _print_components(each)
    _print_limits(rooflines)
    for each in rooflines if steps else ():
        _print_steps(each)


def _print_components(drawn: Roofline) -> None:
    """Print a table per number of requests: weights are the same for any context, the cache is not."""
    for batch in dict.fromkeys(point.batch for point in drawn.points):
        points = [point for point in drawn.points if point.batch == batch]
        together = "" if batch == 1 else f", {batch} requests at once"
        fact(f"{drawn.recipe.name}: {drawn.model} on {_where(drawn.machine, drawn.layout.nodes)}{together}")
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


def _where(machine: Profile, nodes: int) -> str:
    bandwidth = f"{machine.bandwidth:g} GB/s ({machine.source})"
    if nodes == 1:
        return f"{machine.title}, {bandwidth}"
    return f"{nodes} x {machine.title}, each {bandwidth}; bytes are one's, the network costs nothing"


def _print_limits(rooflines: Sequence[Roofline]) -> None:
    limits: list[tuple[str, ...]] = []
    measured: list[tuple[str, ...]] = []
    for each in rooflines:
        for place, point in enumerate(each.points):
            start = (each.recipe.name, str(point.context))
            limits.append((*start, str(point.batch), *_cost(point.size, point), f"{point.limit:.1f}"))
            speeds = [speed for speed in point.measured if speed.context is not None or place == 0]
            measured += [
                (*start, f"{speed.decode:.1f}", f"{speed.decode / point.limit:.0%}", _source(speed)) for speed in speeds
            ]
    print_table(("recipe", "context", "requests", "GB", "ms", "tok/s at most"), limits)
    if measured:
        click.echo()
        print_table(("recipe", "context", "measured", "of that", "by whom"), measured)
        say("Others measured with formats of their own, unless they say these.")


def _print_steps(one: Roofline) -> None:
    batch = one.steps[0].points[0].batch
    together = "" if batch == 1 else f", {batch} requests at once"
    click.echo()
    fact(f"{one.recipe.name}, one change at a time{together}: tokens a second at most")
    rows = [
        (
            f"{'' if place == 0 else '+ '}{step.title}",
            *_cost(step.points[0].weights, step.points[0]),
            f"{batch * step.points[0].bandwidth / step.points[0].weights:.1f}",
            *(f"{point.limit:.1f}" for point in step.points),
        )
        for place, step in enumerate(one.steps)
    ]
    print_table(("", "GB of weights", "ms", "weights only", *(f"at {point.context}" for point in one.steps[0].points)), rows)


def _cost(size: float, point: Point) -> tuple[str, str]:
    return f"{size / 1e9:.3f}", f"{size / point.bandwidth * 1e3:.2f}"


def _source(one: Measured) -> str:
    stated = "" if one.context is not None else " (context not stated)"
    return f"{one.source}{stated}{', these formats' if one.alike else ''}"


def _json(one: Roofline, *, steps: bool) -> dict[str, object]:
    return {
        "recipe": one.recipe.name,
        "model": one.model,
        "hardware": one.machine.name,
        "bandwidth": one.machine.bandwidth * 1e9,
        "nodes": one.layout.nodes,
        "moe": one.layout.moe,
        "points": [_point_json(point) for point in one.points],
        "steps": [
            {"title": step.title, "weights": step.points[0].weights, "points": [_point_json(point) for point in step.points]}
            for step in one.steps
        ]
        if steps
        else None,
    }


def _point_json(point: Point) -> dict[str, object]:
    return {
        "context": point.context,
        "batch": point.batch,
        "bytes": point.size,
        "seconds": point.seconds,
        "limit": point.limit,
        "components": [
            {"name": part.name, "format": part.form, "bytes": part.size, "seconds": part.size / point.bandwidth}
            for part in point.components
        ],
        "measured": [
            {
                "context": each.context,
                "decode": each.decode,
                "share": each.decode / point.limit,
                "source": each.source,
                "alike": each.alike,
            }
            for each in point.measured
        ],
    }
