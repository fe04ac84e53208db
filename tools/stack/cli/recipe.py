# SPDX-License-Identifier: Apache-2.0
"""`stack recipe`: show how published models are served, and check the recipes against the pinned sources."""

from pathlib import Path
from typing import Any

import click

from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, source_option, write_or_print
from stack.cli.completing import complete_recipes
from stack.cli.recipe_exchange import export, import_
from stack.cli.sentences import fact, say
from stack.deploy import hardware, recipes
from stack.deploy.recipes import Backends, Recipe, Speed
from stack.model import verdict
from stack.serving import checking
from stack.serving.command import Command, pairs, shown
from stack.serving.compose import Usage
from stack.serving.compose import compose as made

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Value of a variable that the recipe leaves open; repeatable.",
)
_BACKENDS = {"moe": "MoE", "decode": "MoE decode", "linear": "linear layers", "attention": "attention", "kv": "KV cache"}


@click.group("recipe")
def command() -> None:
    """Show, check, import and export recipes: the command that serves a model on a machine, the expected kernels and speeds."""


@command.command("list", short_help="List all recipes, with hardware, memory and speed.")
@json_option
@click.pass_obj
def list_(options: Options, as_json: bool) -> None:
    """List the recipes: those that come with the tool, and those of the stack, in its folder validation/recipes.

    GB is the memory that a recipe takes on each node. The speed is of one request, unless it names a number of requests, and its source
    is in parentheses. The last column names a verdict that proves the recipe: without one, nobody has run it as it is.
    """

    root = options.root_if_any()
    listed = [recipes.load(name, root) for name in recipes.known(root)]
    if as_json:
        keys = ("name", "title", "model", "base", "hardware", "speeds", "proven")
        print_json({"recipes": [{key: value for key, value in _as_json(each).items() if key in keys} for each in listed]})
        return
    rows = [(each.name, *_machine(each), _speed(each), each.proven or "-") for each in listed]
    print_table(("recipe", "hardware", "GB", "tok/s", "proven by"), rows, labelled=True)


@command.command("show", short_help="Show a recipe: command, memory, kernels, speeds.")
@click.argument("name", shell_complete=complete_recipes)
@set_option
@click.option("--model", type=click.Path(path_type=Path), help="The checkpoint's folder, instead of the published one.")
@json_option
@click.pass_obj
def show(options: Options, name: str, settings: tuple[str, ...], model: Path | None, as_json: bool) -> None:
    """Show a recipe: its exact command, required memory, expected kernels, and speeds with their sources.

    Variables without --set remain shell variables in the command.
    """

    recipe = recipes.load(name, options.root_if_any())
    commands = shown(recipe, pairs(settings), model)
    if as_json:
        print_json(_as_json(recipe) | {"commands": [_command_json(each) for each in commands], "before": _before_json(recipe)})
        return
    _print(recipe, options.root_if_any())
    for place, each in enumerate(commands):
        click.echo(f"\non node {place}:" if len(commands) > 1 else "")
        click.echo(str(each))


@command.command("check", short_help="Check recipes against the pinned sources.")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_recipes)
@json_option
@source_option
@click.pass_context
def check(context: click.Context, names: tuple[str, ...], as_json: bool, source: str | None) -> None:
    """Check recipes (default: all) against the sources at the pins with the stack's patches.

    The sources have to read every variable, to declare every flag of `vllm serve`, and to accept every value, if they list a flag's
    values. For settings of early forks, today's equivalents are named. Exit code 1 if something is missing.
    """

    options: Options = context.obj
    root = options.root_if_any()
    chosen = [recipes.load(name, root) for name in names or recipes.known(root)]
    with options.place(source) as place, Stores(options.load(), place) as stores:
        findings = checking.check(stores, chosen)
    if as_json:
        fields = ("recipe", "setting", "problem")
        print_json(
            {"clean": not findings, "findings": [{name: getattr(finding, name) for name in fields} for finding in findings]}
        )
    elif findings:
        print_table(
            ("recipe", "setting", "problem"), [(finding.recipe, finding.setting, finding.problem) for finding in findings]
        )
    else:
        say(f"in order: the pinned sources take what {counted(len(chosen), 'recipe says', 'recipes say')}")
    context.exit(1 if findings else 0)


@command.command("compose", short_help="Write a compose file that serves a recipe.")
@click.argument("name", shell_complete=complete_recipes)
@click.option("--open", "is_open", is_flag=True, help="Accept other machines: listen on STACK_HOST, with an API key.")
@click.option("--development", is_flag=True, help="Mount the sources, to work on them.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@json_option
@click.pass_obj
def compose(options: Options, name: str, is_open: bool, development: bool, output: Path | None, as_json: bool) -> None:
    """Write a compose file that serves the recipe with the stack's image, for this machine only unless --open.

    Models and compiled kernels are kept in volumes. With several nodes, each has its own service.
    """

    if is_open and development:
        raise click.UsageError("--development is for this machine alone: leave --open out")
    kind = Usage.OPEN if is_open else Usage.DEVELOPMENT if development else Usage.LOCAL
    text = made(recipes.load(name, options.root_if_any()), kind)
    write_or_print(text, output, as_json=as_json)


command.add_command(import_)
command.add_command(export)


def _print(recipe: Recipe, root: Path | None) -> None:
    """Print a recipe without its command."""

    rows = [("recipe", recipe.name), ("serves", recipe.title)]
    if recipe.base is not None:
        rows.append(("based on", f"{recipe.base}, with changes; all of it is shown here"))
    if (model := recipe.checkpoint) is not None:
        revision = ", no revision is pinned" if model.revision is None else f" at {model.revision}"
        size = "" if model.size is None else f", {model.size / 1e9:.1f} GB"
        rows.append(("model", f"{model.repository}{revision}{size}"))
    if recipe.hardware is not None:
        machine = hardware.load(recipe.hardware.name)
        count = f"{recipe.hardware.nodes} x " if recipe.hardware.nodes > 1 else ""
        rows.append(("hardware", f"{count}{machine.title}, compute capability {machine.capability}"))
        rows.append(("memory", f"{recipe.hardware.memory:g} GB{' of each' if recipe.hardware.nodes > 1 else ''}"))
        rows += [("before", f"{each.do} ({each.why}: {each.source})") for each in machine.before]
    rows.append(("has to run", _backends(recipe.backends) or "-"))
    rows += [("speed", f"{_rate(each)} after {each.context} tokens ({each.source})") for each in _speeds(recipe)]
    rows.append(("proven by", _proof(recipe, root)))
    rows += [(name, meaning) for name, meaning in recipe.variables.items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        fact(f"{name:{width}}  {text}", below=" " * (width + 2))


def _machine(recipe: Recipe) -> tuple[str, str]:
    """Return the cells of a recipe's hardware and memory."""

    machine = recipe.hardware
    if machine is None:
        return ("CPU" if recipe.is_ours else "any"), "-"
    return f"{machine.nodes} x {machine.name}" if machine.nodes > 1 else machine.name, f"{machine.memory:g}"


def _speeds(recipe: Recipe) -> tuple[Speed, ...]:
    return (*recipe.speeds, *recipe.batch_speeds)


def _speed(recipe: Recipe) -> str:
    """Return the cell of a recipe's speed: with the fewest requests and the shortest prompt, and whose number it is."""

    if not (measured := _speeds(recipe)):
        return "-"
    best = min(measured, key=lambda speed: (speed.requests, speed.context))
    together = f", {best.requests} requests" if best.requests > 1 else ""
    return f"{best.decode:.0f}{together} ({best.by})"


def _rate(speed: Speed) -> str:
    together = f" of {speed.requests} requests together" if speed.requests > 1 else ""
    return f"{speed.decode:g} tok/s{together}"


def _backends(expected: Backends) -> str:
    named = [f"{words} {value}" for name, words in _BACKENDS.items() if (value := getattr(expected, name)) is not None]
    graphs = [] if expected.graphs is None else [f"CUDA graphs {'on' if expected.graphs else 'off'}"]
    return ", ".join((*named, *graphs))


def _proof(recipe: Recipe, root: Path | None) -> str:
    """Describe a recipe's verdict: its machine, weights and stack."""

    if recipe.proven is None:
        return "nothing yet: no verdict is kept"
    file = recipes.verdict_file(recipe, root)
    if file is None:
        return f"{recipe.proven}, in the repository only"
    proof = verdict.load(file)
    where = ", ".join(gpu.name for gpu in proof.machine.gpus) or proof.machine.cpu
    return f"{recipe.proven}: {where}, {proof.weights or 'no'} weights, stack {proof.stack[:12]}"


def _as_json(recipe: Recipe) -> dict[str, Any]:
    machine, expected = recipe.hardware, recipe.backends
    return {
        "name": recipe.name,
        "title": recipe.title,
        "model": recipe.model,
        "base": recipe.base,
        "hardware": {"name": machine.name, "nodes": machine.nodes, "memory": machine.memory} if machine else None,
        "backends": {name: getattr(expected, name) for name in (*_BACKENDS, "graphs")},
        "speeds": [
            {
                "context": each.context,
                "requests": each.requests,
                "decode": each.decode,
                "by": each.by,
                "source": each.source,
            }
            for each in _speeds(recipe)
        ],
        "proven": recipe.proven,
        "variables": dict(recipe.variables),
    }


def _command_json(started: Command) -> dict[str, Any]:
    return {"arguments": list(started.arguments), "environment": dict(started.environment)}


def _before_json(recipe: Recipe) -> list[dict[str, str]]:
    before = hardware.load(recipe.hardware.name).before if recipe.hardware is not None else ()
    return [{"do": each.do, "why": each.why, "source": each.source} for each in before]
