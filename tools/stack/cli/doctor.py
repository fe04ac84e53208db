# SPDX-License-Identifier: Apache-2.0
"""`stack doctor`: what is wrong with a machine, scripts, logs and a running server, and what to do about it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.drift import check_settings
from stack.carry.drift.settings import Unknown
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, one_line, print_json
from stack.cli.seconds import Seconds
from stack.deploy import hardware, recipes
from stack.deploy.recipes import Recipe
from stack.doctor import facts, logs, rules, running, script, scripts
from stack.doctor.finding import Finding, run
from stack.doctor.machine import CHECKS
from stack.doctor.rules import Target
from stack.doctor.script import Script
from stack.model.stack import Stack
from stack.proof.compiling import jobs
from stack.serving import roofline
from stack.validation import endpoint, machine

_COLOURS = {"wrong": "red", "worth knowing": "yellow", "fine": "green", "could not tell": "magenta"}
_SIGNS = {"wrong": "✗", "worth knowing": "!", "fine": "✓", "could not tell": "?"}
_SPEED_AT = 128
"""Tokens before those whose speed is measured, about: a limit is of a context."""


@click.command("doctor")
@click.option(
    "--machine", is_flag=True, help="Look at this machine, too; without --log, --script and --url that is what is done."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="The interpreter that serves. Default: that of the `vllm` on PATH.",
)
@click.option(
    "--script",
    "scripts",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A serve script, compose file, Dockerfile or .env file. Again for more.",
)
@click.option(
    "--log", "logs", multiple=True, type=click.Path(path_type=Path), help="What a server has printed. Again for more."
)
@click.option("--url", help="A running server, such as http://127.0.0.1:8000; VLLM_API_KEY is shown to it where it is set.")
@click.option("--model", help="Which of the server's models. Default: the only one.")
@click.option("--recipe", "name", help="What should run, and where: `stack recipe list`.")
@click.option("--timeout", type=Seconds(), default=180, show_default=True, help="Seconds for all answers of the server.")
@click.option("--verbose", "-v", is_flag=True, help="Show what is fine, too.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    machine: bool,
    python: Path | None,
    scripts: tuple[Path, ...],
    logs: tuple[Path, ...],
    url: str | None,
    model: str | None,
    name: str | None,
    timeout: float,
    verbose: bool,
    as_json: bool,
) -> None:
    """Find what is wrong with a machine, with scripts, with a server's log or with a running server.

    Each finding has its place, down to the line, and the fix. Nothing is changed. Exit code 1 when something is wrong; what is worth
    knowing, or could not be told, does not count.
    """

    options: Options = context.obj
    recipe = recipes.load(name) if name is not None else None
    found: list[Finding] = []
    if machine or not (scripts or logs or url):
        found += _machine(options, python, recipe)
    if scripts:
        found += _scripts(options, scripts, recipe)
    if logs:
        found += _logs(options, logs, recipe)
    if url is not None:
        found += _server(url, model, recipe, timeout)
    if as_json:
        print_json(_json(found))
    else:
        _print(found, verbose)
    context.exit(1 if any(one.severity == "wrong" for one in found) else 0)


def _machine(options: Options, python: Path | None, recipe: Recipe | None) -> Iterator[Finding]:

    gathered = facts.gather(python or facts.interpreter(), options.load().pins, _utilization(recipe))
    return run(CHECKS, gathered, "this machine")


def _utilization(recipe: Recipe | None) -> float | None:
    """The share of the GPU's memory that a recipe takes."""

    if recipe is None or recipe.hardware is None:
        return None
    flag = "--gpu-memory-utilization"
    arguments = recipe.arguments
    return float(arguments[arguments.index(flag) + 1]) if flag in arguments else rules.DEFAULT


def _scripts(options: Options, files: Sequence[Path], recipe: Recipe | None) -> Iterator[Finding]:

    read = [script.read(file) for file in files]
    pinned = {pin.upstream: pin.archive for pin in options.load().pins}
    archive = pinned.get("flashinfer")
    flashinfer = archive.version if archive is not None else None
    unknown, target = _unknown(options, read), _target(recipe)
    for one in read:
        yield from scripts.look(scripts.ScriptSubject(one, unknown, target, flashinfer, frozenset(pinned)))


def _unknown(options: Options, read: Sequence[Script]) -> dict[str, Unknown] | None:
    """What scripts name and the patched trees at the pins do not know; None where these cannot be had."""

    stack: Stack = options.load()
    variables = {name for one in read for name in scripts.names(one)[0]}
    flags = {name for one in read for name in scripts.names(one)[1]}
    if not variables and not flags:
        return {}
    found: dict[str, Unknown] = {}
    try:
        with options.place() as place, Stores(stack, place) as stores:
            for pin in stack.pins:
                if pin.within is None:
                    objects, tip = stores.objects(pin.upstream), stores.tip(pin.upstream)
                    found |= {one.name: one for one in check_settings(objects, objects.tree_of(tip), variables, flags)}
    except StackError:
        return None
    return found


def _target(recipe: Recipe | None) -> Target | None:
    """The machine that scripts are for: the recipe's, else this one if it has a GPU."""

    if recipe is not None and recipe.hardware is not None:
        profile = hardware.load(recipe.hardware.name)
        return Target(profile.title, profile.capability, int(profile.memory * 10**9), profile.unified)
    here = machine.here()
    if not here.gpus:
        return None
    gpu = here.gpus[0]
    return Target(gpu.name, gpu.capability, gpu.memory or here.memory, gpu.memory is None, jobs.available_memory())


def _logs(options: Options, files: Sequence[Path], recipe: Recipe | None) -> Iterator[Finding]:

    archive = next((pin.archive for pin in options.load().pins if pin.upstream == "vllm"), None)
    for file in files:
        yield from logs.look(logs.read(file, recipe, archive.version if archive is not None else None), str(file))


def _server(url: str, model: str | None, recipe: Recipe | None, longest: float) -> Iterator[Finding]:

    base = endpoint.at(url).url.removesuffix("/v1")
    return running.look(base, model, recipe, _limit(recipe), key=os.environ.get("VLLM_API_KEY"), longest=longest)


def _limit(recipe: Recipe | None) -> float | None:
    """The tokens a second that the memory of the recipe's hardware allows; None where that is not counted."""

    if recipe is None or recipe.hardware is None:
        return None
    try:
        return roofline.limit(recipe, hardware.load(recipe.hardware.name), _SPEED_AT)
    except StackError:
        return None


def _print(found: Sequence[Finding], verbose: bool) -> None:
    """Print findings by place, the worst first, each with its fix below it; what is fine is counted, unless all is wanted."""
    order = [*_SIGNS]
    for where in dict.fromkeys(one.where for one in found):
        here = [one for one in found if one.where == where]
        shown = sorted(
            (one for one in here if verbose or one.severity != "fine"),
            key=lambda one: (order.index(one.severity), one.found.line or 0),
        )
        click.secho(one_line(where), bold=True)
        for one in shown:
            sign = click.style(_SIGNS[one.severity], fg=_COLOURS[one.severity], bold=True)
            line = f"{one.place}: " if one.found.line else ""
            click.echo(f"  {sign} {one_line(line + one.found.what)} {click.style(f'[{one.check}]', dim=True)}")
            if one.found.fix:
                click.echo(f"    {click.style('fix:', bold=True)} {one_line(one.found.fix)}")
        folded = len(here) - len(shown)
        if folded:
            click.echo(f"  {click.style('✓', fg='green')} {folded} {'check is' if folded == 1 else 'checks are'} fine")
        click.echo()
    counts = [(name, sum(one.severity == name for one in found)) for name in _SIGNS]
    click.echo(
        ", ".join(click.style(f"{count} {name}", fg=_COLOURS[name], bold=bool(count)) for name, count in counts if count)
    )


def _json(found: Sequence[Finding]) -> dict[str, object]:
    return {
        "healthy": not any(one.severity == "wrong" for one in found),
        "counts": {name: sum(one.severity == name for one in found) for name in _SIGNS},
        "findings": [
            {
                "check": one.check,
                "severity": str(one.severity),
                "where": one.where,
                "line": one.found.line,
                "what": one.found.what,
                "fix": one.found.fix or None,
            }
            for one in found
        ],
    }
