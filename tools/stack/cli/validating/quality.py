# SPDX-License-Identifier: Apache-2.0
"""`stack validate quality`: measure what quantizing qkv, o and lm_head does to a model."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from stack.base.progress import Progress
from stack.cli.common import Options
from stack.cli.completing import complete_recipes
from stack.cli.validating import conclude, suite_options
from stack.cli.validating.served import servable, served
from stack.model import digest
from stack.model.document import read_text
from stack.model.stack import Stack
from stack.model.verdict import Weights
from stack.validation import endpoint, machine, texts
from stack.validation.quality.choices import CHOICES, REFERENCE
from stack.validation.quality.scores import NAME
from stack.validation.quality.suite import FOLDER, Quality, Recording, Server
from stack.validation.suite import ValidatedSubject


@click.command("quality")
@click.option("--url", help="A server to record, such as http://127.0.0.1:8000; without one, existing records are compared.")
@click.option(
    "--recipe",
    shell_complete=complete_recipes,
    metavar="NAME",
    help="Instead of --url: start servers with a tiny model, from validation/recipes, one per choice that a CPU can run.",
)
@click.option(
    "--as", "name", metavar="CHOICE", help="With --url: the choice that the server was started with: bf16, qkv-mxfp4, …"
)
@click.option("--model", help="With --url: the server's name of the model. Default: the only one.")
@click.option(
    "--text",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A UTF-8 text for the model to read. Default: one of this project, about 1500 tokens.",
)
@click.option("--reference", default="bf16", show_default=True, help="The record with which the others are compared.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Number of likeliest tokens to record (see vLLM's --max-logprobs).",
)
@click.option("--weights", type=click.Choice(["real", "dummy", "tiny"]), help="What the servers have loaded.")
@suite_options
@click.pass_context
def command(
    context: click.Context,
    /,
    url: str | None,
    recipe: str | None,
    name: str | None,
    model: str | None,
    text: Path | None,
    reference: str,
    top: int,
    weights: str | None,
    **common: Any,
) -> None:
    """Measure how far a server with quantized dense layers is from one with layers in BF16.

    With --recipe everything happens here, with a tiny model: a server per choice, one after the other, a minute each. Otherwise start
    a server with the checkpoint's own layers and record it with `--as bf16`; then start and record one for each choice of layers and
    formats. Choices without a record are reported as not run, with the flag that the server needs.

    The comparison covers the divergence (KL) of the distributions over the next token, how often the likeliest token is the same, and
    perplexity. A choice fails if it is no nearer to BF16 than a server that does not run the model, or if nothing changed.
    """

    if (url is None) != (name is None):
        raise click.UsageError("--url and --as go together")
    if url is not None and recipe is not None:
        raise click.UsageError("name a server with --url, or a recipe of ours with --recipe")
    options: Options = context.obj
    stack = options.load()
    recordings: list[Recording] = []
    if url is not None and name is not None:
        recordings = [_recording(url, name, model)]
    elif recipe is not None:
        recordings, weights = _recordings(options, stack, recipe), "tiny"
    read = read_text(text or texts.ALMANAC, piped=True)
    suite = Quality(stack.root / FOLDER, read, digest.of(stack), reference, recordings, top, gpu=bool(machine.here().gpus))
    conclude(
        context, stack, suite, "quality", subject=ValidatedSubject(recipe, Weights(weights) if weights else None), **common
    )


def _recording(url: str, name: str, model: str | None) -> Recording:

    if not re.fullmatch(NAME, name):
        raise click.UsageError(f"--as {name!r}: use letters, digits, '.', '_' and '-'")
    server = endpoint.at(url)
    chosen = server, server.model(model).name
    return Recording(name, lambda _: nullcontext(chosen))


def _recordings(options: Options, stack: Stack, recipe: str) -> list[Recording]:
    """Return the recordings of a recipe's servers: the reference, and the choices that a CPU can run.

    Raises:
        StackError: The recipe cannot be served here.

    """

    def server(arguments: tuple[str, ...]) -> Callable[[Progress], AbstractContextManager[Server]]:
        @contextmanager
        def opened(tell: Progress) -> Iterator[Server]:

            with served(options, stack, recipe, tell, arguments) as running:
                answering = endpoint.at(running.url)
                yield answering, answering.model(None).name

        return opened

    servable(recipe)
    return [
        Recording(REFERENCE, server(())),
        *(Recording(choice.name, server(choice.arguments)) for choice in CHOICES if not choice.needs),
    ]
