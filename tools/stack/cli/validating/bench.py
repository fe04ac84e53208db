# SPDX-License-Identifier: Apache-2.0
"""`stack validate bench`: how fast a server is, and how that stands to what was measured before."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stack.cli.common import Options, progress
from stack.cli.validating import conclude, look_ahead, suite_options
from stack.cli.validating.served import served
from stack.validation.bench import start


@click.command("bench")
@click.option("--url", help="The server to measure, such as http://127.0.0.1:8000.")
@click.option(
    "--recipe", metavar="NAME", help="In place of --url: a server of ours with a tiny model, as validation/recipes has it."
)
@click.option("--model", help="The model, by the name that the server gives it. Default: the only one.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True),
    help="The model's tokenizer.json, or its folder. Default: that of the folder that the server says it loaded.",
)
@click.option(
    "--weights", type=click.Choice(["real", "dummy", "tiny"]), help="What the server has loaded; unsaid, nothing is compared."
)
@click.option(
    "--pp", "prompts", type=click.IntRange(min=1), multiple=True, help="Tokens of a prompt. Default: 512, 2048, 8192."
)
@click.option("--tg", "answers", type=click.IntRange(min=2), multiple=True, help="Tokens of an answer. Default: 32, 128.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="How often each size is measured.")
@click.option("--record", is_flag=True, help="Keep what was measured in validation/baselines as the baseline of this machine.")
@suite_options
@click.pass_context
def command(
    context: click.Context,
    /,
    url: str | None,
    recipe: str | None,
    model: str | None,
    tokenizer: Path | None,
    weights: str | None,
    prompts: tuple[int, ...],
    answers: tuple[int, ...],
    runs: int,
    record: bool,
    **common: Any,
) -> None:
    """Measure a server's speed with llama-benchy, and compare it with what was measured before.

    Prints the table that users post. A size whose requests fail, or whose token counts are not those of the text that came,
    fails and has no number. Each number that validation/baselines has of this hardware and model is compared by a 95 %
    confidence interval (Welch's): better, same, worse (failed), or not comparable (not run), and why. The first run makes an
    environment for llama-benchy in the cache (100 MB to download).
    """

    if (url is None) == (recipe is None):
        raise click.UsageError("name a server with --url, or a recipe of ours with --recipe")
    options: Options = context.obj
    stack = options.load()
    asked = start.BenchOptions(url or "", model, tokenizer, weights, prompts, answers, runs, record, recipe)
    look_ahead(stack, "bench", start.names(asked), **common)
    with ExitStack() as held:
        with progress() as tell:
            if recipe is not None:
                asked = replace(asked, url=held.enter_context(served(options, stack, recipe, tell)).url, weights="tiny")
            bench = start.begin(stack, options.cache, asked, tell)
        conclude(context, stack, bench.suite, "bench", subject=bench.subject, after=bench.after, **common)
