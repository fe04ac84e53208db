# SPDX-License-Identifier: Apache-2.0
"""`stack validate serve`: check a real server with the stack's patches."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from stack.carry import effects
from stack.carry.upstream_stores import Place, Stores
from stack.cli.common import Options, source_option
from stack.cli.completing import complete_recipes
from stack.cli.validating import conclude, suite_options
from stack.cli.validating.served import wheel
from stack.deploy import recipes as kitchen
from stack.model.verdict import Case, Weights
from stack.store import cache
from stack.validation import endpoint
from stack.validation.serve import suite
from stack.validation.suite import Job, ValidatedSubject

_GIVEN = "gpt-oss"
"""The recipe of a running server with any weights."""


@click.command("serve")
@click.option(
    "--recipe",
    "recipes",
    shell_complete=complete_recipes,
    multiple=True,
    metavar="NAME",
    help="A recipe to serve; repeatable. Default: all with a model of our own; with --url gpt-oss, whose answers are not known.",
)
@click.option(
    "--url",
    help="Test a running server of gpt-oss, instead of starting one. The date in its prompts is read from it; VLLM_API_KEY is sent to "
    "it if it is set.",
)
@click.option(
    "--weights",
    type=click.Choice(["real", "dummy"]),
    help="With --url: the weights that the server has loaded. Without it no gate that asks for weights counts the verdict.",
)
@click.option(
    "--ablate", is_flag=True, help="Also serve without each series that acts on a CPU, and check that its absence is noticed."
)
@click.option("--no-prove", is_flag=True, help="Skip the proofs of the series, which `stack prove` runs.")
@suite_options
@source_option
@click.pass_context
def command(
    context: click.Context,
    recipes: tuple[str, ...],
    url: str | None,
    weights: str | None,
    ablate: bool,
    no_prove: bool,
    only: tuple[str, ...],
    resume: bool,
    stale: bool,
    out: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Serve a tiny gpt-oss with vLLM and the stack's patches on this machine's CPU, and test it with clients' requests.

    The model's answers are known, to the token, and its log-probabilities are compared with transformers on the same weights. Each
    series' effect is checked in the server. The first run makes an environment with torch (3 GB) and writes the models (0.5 GB) into
    the cache. A server takes 5 GB of memory; none is left when the command ends, however it ends. A server of yours (--url URL) is only
    tested for what holds with any weights.
    """

    options: Options = context.obj
    chosen = tuple(map(kitchen.load, recipes or ((_GIVEN,) if url is not None else kitchen.ours())))
    given = any(not recipe.is_ours for recipe in chosen)
    if url is not None and (len(chosen) != 1 or ablate):
        raise click.UsageError("--url goes with one --recipe, and without --ablate")
    if given and url is None:
        raise click.UsageError(f"--recipe {chosen[0].name} asks a server of yours: name it with --url")
    if weights is not None and not given:
        raise click.UsageError("--weights goes with a server of yours: the recipes have models of our own")
    plan = suite.ServeOptions(
        chosen,
        endpoint.at(url).url.removesuffix("/v1") if url else None,
        key=(os.environ.get("VLLM_API_KEY") or None) if url else None,
        ablate=ablate,
        prove=not no_prove,
    )
    loaded = Weights(weights) if weights else None if given else Weights.TINY
    place = Place(
        cache.root(options.cache), None if source is None else "git" if source == "git" else "archive"
    )  # the suite shows its own progress
    with Stores(options.load(), place) as stores, tempfile.TemporaryDirectory(prefix="stack-wheel-") as folder:
        effects.check(stores)

        def cases(job: Job) -> Iterator[Case]:
            return suite.cases(job, stores, lambda stack: wheel(stack, place, Path(folder)), plan)

        subject = ValidatedSubject(" ".join(recipe.name for recipe in chosen), loaded, suite.versions(stores.stack, plan))
        conclude(
            context,
            stores.stack,
            cases,
            "serve",
            only=only,
            resume=resume,
            stale=stale,
            out=out,
            as_json=as_json,
            subject=subject,
        )
