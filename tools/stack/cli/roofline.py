# SPDX-License-Identifier: Apache-2.0
"""`stack roofline`: compute a recipe's highest possible speed from the bytes that memory must deliver per token."""

from pathlib import Path

import click

from stack.cli.common import Options, json_option, print_json
from stack.cli.completing import complete_recipes
from stack.cli.rendering import rooflines as rendering
from stack.deploy import recipes as known
from stack.deploy.shapes import config_file
from stack.serving import plot as drawing
from stack.serving import roofline


@click.command("roofline")
@click.argument("recipes", nargs=-1, metavar="RECIPE...", shell_complete=complete_recipes)
@click.option("--hardware", metavar="NAME", help="A machine other than the recipe's, such as spark or h200.")
@click.option(
    "--context", "contexts", multiple=True, type=int, metavar="N", help="Tokens of context. Default: 512, 2048, 8192."
)
@click.option("--batch", "batches", multiple=True, type=int, metavar="M", help="Number of concurrent requests. Default: 1.")
@click.option(
    "--config", type=click.Path(path_type=Path), help="The config.json of another model than the recipe's; needs no recipe."
)
@click.option(
    "--bandwidth",
    type=float,
    metavar="GB/s",
    help="Memory bandwidth in 10^9 bytes per second. Default: the measured one, or the data sheet's.",
)
@click.option(
    "--nodes", type=int, metavar="N", help="Nodes that share the model, tensor parallel. Default: as the recipe says."
)
@click.option("--drafts", type=int, metavar="K", help="Tokens drafted in a step. Default: as the recipe says.")
@click.option("--acceptance", type=float, metavar="P", help="Probability that a drafted token is accepted, from 0 to 1.")
@click.option("--kv-cache-dtype", "kv", metavar="TYPE", help="Without a recipe: the type of the KV cache, such as fp8.")
@click.option(
    "--steps",
    is_flag=True,
    help="For gpt-oss, show intermediate steps, too: the pinned release, then one format or padding change at a time.",
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
    nodes: int | None,
    drafts: int | None,
    acceptance: float | None,
    kv: str | None,
    steps: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compute the tokens per second that memory allows for RECIPEs, by component, and show measured speeds.

    Every byte that a token needs is assumed to be read once, at full bandwidth. Computing, launches and the network between nodes are
    assumed to cost nothing, so a server can only be slower. With concurrent requests, each token's experts are assumed to be
    random. Measured speeds may have used other formats.

    \b
    stack roofline gpt-oss-120b-spark --steps
    stack roofline qwen3-6-27b-nvfp4-spark --acceptance 0.7
    stack roofline --config config.json --hardware spark --nodes 2 --batch 8
    """

    if not recipes and config is None:
        raise click.UsageError("Missing argument 'RECIPE...', or --config in its place")
    if recipes and kv is not None:
        raise click.UsageError("--kv-cache-dtype is for --config without a recipe: the recipe names the type of its cache")
    if config is not None:
        config_file.demand(config)
    root = options.root_if_any()
    chosen = [known.load(name, root) for name in dict.fromkeys(recipes)] or [roofline.anonymous(kv)]
    found = [
        roofline.of(
            recipe,
            roofline.machine(recipe, hardware, bandwidth),
            contexts=contexts or roofline.CONTEXTS,
            batches=batches or (1,),
            config=config,
            nodes=nodes,
            drafts=drafts,
            acceptance=acceptance,
        )
        for recipe in chosen
    ]
    if plot is not None:
        drawing.draw(found, plot, steps=steps)
    if as_json:
        print_json({"rooflines": [rendering.as_json(each, steps=steps) for each in found]})
        return
    rendering.show(found, steps=steps)
