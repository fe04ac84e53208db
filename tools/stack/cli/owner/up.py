# SPDX-License-Identifier: Apache-2.0
"""`spark-stack up`: bring up a recipe's server in a container that survives reboots."""

import shlex
from pathlib import Path

import click
from click.core import ParameterSource

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import json_option, print_json
from stack.cli.completing import complete_recipes
from stack.cli.owner import outcomes, starting
from stack.cli.sentences import tell
from stack.deploy import recipes
from stack.deploy.recipes import RANK, Recipe
from stack.owner import missing, preview, state, state_file
from stack.owner.missing import Start
from stack.owner.nodes import kept
from stack.owner.state import Wanted
from stack.serving import demands, memory_guard
from stack.serving.command import pairs

_PORT = 8000
_OF_A_RECIPE = ("image", "key", "model", "port", "opened", "nodes", "variables", "allow_fallback", "keep_free")
"""Parameters that say how a recipe is served."""


@click.command("up")
@click.argument("recipe", required=False, shell_complete=complete_recipes)
@click.argument("extra", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAGS...]")
@starting.image_option
@starting.key_option
@click.option(
    "--model",
    type=click.Path(path_type=Path, file_okay=False),
    help="The checkpoint's folder. Default: the published one, in Hugging Face's cache; what it lacks is downloaded.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=_PORT, show_default=True, help="The port to publish.")
@click.option("--open", "opened", is_flag=True, help="Let other machines reach it; needs VLLM_API_KEY.")
@click.option("--nodes", type=click.IntRange(1), help="The number of machines, as a check: the recipe says it.")
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="A variable of the recipe; repeatable.")
@click.option("--allow-fallback", is_flag=True, help="Serve even with other kernels or GPUs than the recipe expects.")
@starting.engine_option
@starting.timeout_option
@starting.wait_option
@starting.keep_free_option
@click.option("--dry-run", is_flag=True, help="Print the engine's command; change nothing.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    recipe: str | None,
    extra: tuple[str, ...],
    image: str | None,
    key: Path | None,
    model: Path | None,
    port: int,
    opened: bool,
    nodes: int | None,
    variables: tuple[str, ...],
    allow_fallback: bool,
    engine: str | None,
    timeout: float,
    wait_for_memory: float | None,
    keep_free: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring up a server of RECIPE: its image, its model, its container; wait for its first answer.

    The image is pulled by its digest and verified with --key. The model is taken from Hugging Face's cache, never copied, and what it
    lacks is downloaded. The container starts again after a reboot or a crash, and listens on 127.0.0.1. If other kernels run than the
    recipe expects, the server that ran before comes back: exit code 1. All that is missing is named at once, before anything is started.
    Interrupted or killed, `spark-stack up` goes on; `spark-stack rollback` or another `up RECIPE` gives it up.
    A recipe for several nodes runs on those of `spark-stack setup`: image and model are copied there, and all start and stop together.
    Without RECIPE it starts the server that ran last. Flags behind -- go to `vllm serve`.

    \b
    spark-stack up gpt-oss-120b-spark --image HOST/NAME:TAG --key release.pub.pem
    spark-stack up            what ran last, or what was not finished
    spark-stack up gpt-oss-20b-spark --model DIR --dry-run
    """

    demands.demand_flags(extra)
    if "" in extra:
        raise StackError("a flag behind -- is empty", "leave it out")
    if recipe is None and not dry_run:
        if extra or any(context.get_parameter_source(option) is ParameterSource.COMMANDLINE for option in _OF_A_RECIPE):
            # Without a recipe, the server that ran last starts as it was: an option would be ignored.
            raise click.UsageError("Missing argument 'RECIPE'.", ctx=context)
        with starting.changing(context.obj, engine, timeout, patience=wait_for_memory) as (owner, known):
            outcome = owner.up(known, None)
            context.exit(outcomes.show(outcome, owner.place, as_json=as_json))
    if recipe is None:
        raise click.UsageError("Missing argument 'RECIPE'.", ctx=context)
    chosen = recipes.load(recipe, context.obj.root_if_any())
    _demand_nodes(chosen, nodes)
    values = _of_nodes(chosen, dry=dry_run) | dict(pairs(variables))
    free = memory_guard.default(chosen) if keep_free is None else keep_free
    signer, folder = (path.absolute() if path is not None else None for path in (key, model))
    wanted = Wanted(recipe, image, signer, folder, port, opened, allow_fallback, values, extra, free)
    start = Start(chosen, wanted, state_file.read(state.path()), engine, wait_for_memory or 0.0)
    if dry_run:
        _print_dry(start, as_json=as_json)
        return
    missing.demand(start)
    spread = RANK in values
    with starting.changing(context.obj, engine, timeout, patience=wait_for_memory, spread=spread) as (owner, known):
        outcome = owner.up(known, wanted)
        context.exit(outcomes.show(outcome, owner.place, as_json=as_json))


def _demand_nodes(recipe: Recipe, nodes: int | None) -> None:
    """Refuse a recipe for another number of machines than the named one."""
    own = recipe.hardware.nodes if recipe.hardware is not None else 1
    if nodes is None or nodes == own:
        return
    loaded = map(recipes.load, recipes.known())
    fitting = [
        each.name
        for each in loaded
        if each.model == recipe.model and each.hardware is not None and each.hardware.nodes == nodes
    ]
    remedy = f"for {nodes} there is {', '.join(fitting)}" if fitting else "`stack recipe list` lists the recipes"
    raise StackError(f"recipe {recipe.name} is for {counted(own, 'machine')}, not {nodes}", remedy)


def _of_nodes(recipe: Recipe, *, dry: bool) -> dict[str, str]:
    """Return this machine's values of the variables of a recipe for several nodes, as `spark-stack setup` has kept them."""
    if RANK not in recipe.variables or recipe.hardware is None:
        return {}
    members = kept.read(kept.path())
    if len(members) == recipe.hardware.nodes:
        return {name: value for name, value in members[0].variables.items() if name in recipe.variables}
    if dry:
        return {name: f"${name}" for name in recipe.variables} | {RANK: "0"}
    known = f"setup knows {len(members)}" if members else "no setup has found them"
    raise StackError(f"recipe {recipe.name} is for {recipe.hardware.nodes} machines, and {known}", "spark-stack setup NODE...")


def _print_dry(start: Start, *, as_json: bool) -> None:
    """Print the engine's command, with what is known of the image and the model; nothing is downloaded."""
    shown = preview.of(start)
    words = (shown.engine.name, *shown.words)
    for line in shown.unknown:
        tell(line)
    if as_json:
        print_json({"command": list(words), "line": shlex.join(words)}, "spark-stack-up-dry-run")
    else:
        click.echo(shlex.join(words))
