# SPDX-License-Identifier: Apache-2.0
"""`stack recipe`: how published models are served, on which machines, and whether the pinned sources take what the recipes say."""

from pathlib import Path
from typing import Any

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, source_option
from stack.deploy import checkpoints, hardware, recipes
from stack.deploy.recipes import Backends, Recipe
from stack.model import verdict
from stack.serving import checking
from stack.serving.command import Command, pairs, shown
from stack.serving.compose import Usage
from stack.serving.compose import compose as made

set_option = click.option(
    "--set", "settings", multiple=True, metavar="NAME=VALUE", help="A variable that the recipe leaves to you; several times."
)
_BACKENDS = {"moe": "MoE", "decode": "MoE decode", "linear": "linear layers", "attention": "attention", "kv": "KV cache"}


@click.group("recipe")
def command() -> None:
    """Recipes: the command that serves a model on a machine, what has to run then, and how fast it should be."""


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the recipes."""

    found = [recipes.load(name) for name in recipes.known()]
    if as_json:
        keys = ("name", "title", "model", "hardware", "proven")
        print_json({"recipes": [{key: value for key, value in _as_json(one).items() if key in keys} for one in found]})
        return
    print_table(("recipe", "serves", "proven by"), [(one.name, one.title, one.proven or "-") for one in found])


@command.command("show")
@click.argument("name")
@set_option
@click.option("--model", type=click.Path(path_type=Path), help="The folder of the checkpoint, in place of the published one.")
@json_option
def show(name: str, settings: tuple[str, ...], model: Path | None, as_json: bool) -> None:
    """Show a recipe: the exact command, the memory that it takes, what has to run, and how fast it was, by whom it was said.

    What --set does not say stands in the command as a variable of the shell.
    """

    one = recipes.load(name)
    commands = shown(one, pairs(settings), model)
    if as_json:
        print_json(_as_json(one) | {"commands": [_command_json(each) for each in commands]})
        return
    _print(one)
    for place, each in enumerate(commands):
        click.echo(f"\non node {place}:" if len(commands) > 1 else "")
        click.echo(str(each))


@command.command("check")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@source_option
@click.pass_context
def check(context: click.Context, names: tuple[str, ...], as_json: bool, source: str) -> None:
    """Hold recipes against the sources at the pins, with the stack's patches: all of them, or those that are named.

    Every variable has to be read there, every flag of `vllm serve` to be declared, and every value to be one that its flag takes,
    where the sources say which those are. Settings of the early forks are named with what does the same now. Exit code 1 when
    something is not there.
    """

    options: Options = context.obj
    asked = [recipes.load(name) for name in names or recipes.known()]
    with options.place(source) as place, Stores(options.load(), place) as stores:
        findings = checking.check(stores, asked)
    if as_json:
        fields = ("recipe", "setting", "problem")
        print_json({"clean": not findings, "findings": [{name: getattr(one, name) for name in fields} for one in findings]})
    elif findings:
        print_table(("recipe", "setting", "problem"), [(one.recipe, one.setting, one.problem) for one in findings])
    else:
        click.echo(f"in order: the pinned sources take what {len(asked)} recipes say")
    context.exit(1 if findings else 0)


@command.command("compose")
@click.argument("name")
@click.option("--open", "is_open", is_flag=True, help="To be asked from other machines: STACK_HOST, with an API key.")
@click.option("--development", is_flag=True, help="For work on the sources: they are mounted.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@json_option
def compose(name: str, is_open: bool, development: bool, output: Path | None, as_json: bool) -> None:
    """Write a compose file: the stack's image serves by the recipe, for this machine alone unless --open.

    Models and compiled kernels are kept in volumes. For several nodes each has a service of its own.
    """

    if is_open and development:
        raise click.UsageError("--development is for this machine alone: leave --open out")
    kind = Usage.OPEN if is_open else Usage.DEVELOPMENT if development else Usage.LOCAL
    text = made(recipes.load(name), kind)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"file": str(output) if output else None, "text": text})
    elif output is None:
        click.echo(text, nl=False)


def _print(one: Recipe) -> None:
    """Print what is known of a recipe, without its command."""

    rows = [("recipe", one.name), ("serves", one.title)]
    if one.model in checkpoints.known():
        model = checkpoints.load(one.model)
        rows.append(("model", f"{model.repository} at {model.revision}, {model.size / 1e9:.1f} GB"))
    if one.hardware is not None:
        machine = hardware.load(one.hardware.name)
        count = f"{one.hardware.nodes} x " if one.hardware.nodes > 1 else ""
        rows.append(("hardware", f"{count}{machine.title}, compute capability {machine.capability}"))
        rows.append(("memory", f"{one.hardware.memory:g} GB{' of each' if one.hardware.nodes > 1 else ''}"))
    rows.append(("has to run", _backends(one.backends) or "-"))
    rows += [("speed", f"{each.decode:g} tok/s after {each.context} tokens ({each.source})") for each in one.speeds]
    rows.append(("proven by", _proof(one)))
    rows += [(name, meaning) for name, meaning in one.variables.items()]
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        click.echo(f"{name:{width}}  {text}")


def _backends(expected: Backends) -> str:
    named = [f"{words} {value}" for name, words in _BACKENDS.items() if (value := getattr(expected, name)) is not None]
    graphs = [] if expected.graphs is None else [f"CUDA graphs {'on' if expected.graphs else 'off'}"]
    return ", ".join((*named, *graphs))


def _proof(one: Recipe) -> str:
    """The verdict of a recipe with what it is of: its machine, weights and stack."""

    if one.proven is None:
        return "no verdict that is kept"
    found = verdict.load(recipes.FOLDER.parents[1] / one.proven)
    where = ", ".join(gpu.name for gpu in found.machine.gpus) or found.machine.cpu
    return f"{one.proven}: {where}, {found.weights or 'no'} weights, stack {found.stack[:12]}"


def _as_json(one: Recipe) -> dict[str, Any]:
    machine, expected = one.hardware, one.backends
    return {
        "name": one.name,
        "title": one.title,
        "model": one.model,
        "hardware": {"name": machine.name, "nodes": machine.nodes, "memory": machine.memory} if machine else None,
        "backends": {name: getattr(expected, name) for name in (*_BACKENDS, "graphs")},
        "speeds": [{"context": each.context, "decode": each.decode, "source": each.source} for each in one.speeds],
        "proven": one.proven,
        "variables": dict(one.variables),
    }


def _command_json(one: Command) -> dict[str, Any]:
    return {"arguments": list(one.arguments), "environment": dict(one.environment)}
