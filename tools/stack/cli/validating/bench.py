# SPDX-License-Identifier: Apache-2.0
"""`stack validate bench`: measure a server's speed, and compare it with earlier measurements."""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from stack.cli.common import Options, progress
from stack.cli.completing import complete_recipes
from stack.cli.validating import conclude, look_ahead, suite_options
from stack.cli.validating.served import served
from stack.validation.bench import start


@click.command("bench")
@click.option("--url", help="The server to measure, such as http://127.0.0.1:8000. VLLM_API_KEY is sent to it if it is set.")
@click.option(
    "--recipe",
    shell_complete=complete_recipes,
    metavar="NAME",
    help="Instead of --url: start a server with a tiny model, from validation/recipes.",
)
@click.option("--model", help="The server's name of the model. Default: the only one.")
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path, exists=True),
    help="The model's tokenizer.json, or its folder. Default: the folder that the server reports.",
)
@click.option(
    "--weights",
    type=click.Choice(["real", "dummy", "tiny"]),
    help="What the server has loaded; without it nothing is compared.",
)
@click.option(
    "--pp", "prompts", type=click.IntRange(min=1), multiple=True, help="Tokens of a prompt. Default: 512, 2048, 8192."
)
@click.option("--tg", "answers", type=click.IntRange(min=2), multiple=True, help="Tokens of an answer. Default: 32, 128.")
@click.option("--runs", type=click.IntRange(min=1), default=5, show_default=True, help="Measurements of each size.")
@click.option("--record", is_flag=True, help="Store the results in validation/baselines as this machine's baseline.")
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
    """Measure a server's speed with llama-benchy, and compare it with earlier measurements.

    Prints the table that users post. A size fails, without a number, if its requests fail or its token counts do not match the
    received text. Each number with a baseline for this hardware and model in validation/baselines is compared by a 95 % confidence
    interval (Welch's): better, same, worse (failed), or not comparable (not run), with the reason. The first run makes an
    environment for llama-benchy in the cache (100 MB to download).
    """

    if (url is None) == (recipe is None):
        raise click.UsageError("name a server with --url, or a recipe of ours with --recipe")
    options: Options = context.obj
    stack = options.load()
    key = os.environ.get("VLLM_API_KEY") if url is not None else None
    request = start.BenchOptions(url or "", model, tokenizer, weights, prompts, answers, runs, record, recipe, key)
    look_ahead(stack, "bench", start.names(request), **common)
    with ExitStack() as held:
        with progress() as tell:
            if recipe is not None:
                request = replace(request, url=held.enter_context(served(options, stack, recipe, tell)).url, weights="tiny")
            bench = start.begin(stack, options.cache, request, tell)
        conclude(context, stack, bench.suite, "bench", subject=bench.subject, after=bench.after, **common)
