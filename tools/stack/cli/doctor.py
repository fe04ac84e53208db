# SPDX-License-Identifier: Apache-2.0
"""`stack doctor`: find problems of a machine, scripts, logs and a running server, and say how to fix them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.drift import check_settings
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, one_line, print_json
from stack.cli.completing import complete_recipes
from stack.cli.seconds import Seconds
from stack.cli.sentences import fact
from stack.deploy import hardware, recipes
from stack.deploy.recipes import Recipe
from stack.doctor import facts, logs, rules, running, script, scripts
from stack.doctor.finding import Finding, run
from stack.doctor.machine import CHECKS
from stack.doctor.rules import Target
from stack.doctor.script import Script
from stack.model.stack import Stack
from stack.projects import Unknown
from stack.proof.compiling import jobs
from stack.serving import roofline
from stack.validation import endpoint, machine

_COLOURS = {"wrong": "red", "worth knowing": "yellow", "fine": "green", "could not tell": "magenta"}
_SIGNS = {"wrong": "✗", "worth knowing": "!", "fine": "✓", "could not tell": "?"}
_SPEED_AT = 128
"""Approximate context length at which speed is measured: a limit holds for one context length."""


@click.command("doctor")
@click.option(
    "--machine", is_flag=True, help="Check this machine, too; without --log, --script and --url only the machine is checked."
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="The interpreter that runs the server. Default: that of the `vllm` on PATH.",
)
@click.option(
    "--script",
    "scripts",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A serve script, compose file, Dockerfile or .env file; repeatable.",
)
@click.option("--log", "logs", multiple=True, type=click.Path(path_type=Path), help="A server's log; repeatable.")
@click.option("--url", help="A running server, such as http://127.0.0.1:8000. VLLM_API_KEY is sent to it if it is set.")
@click.option("--model", help="The server's model to check. Default: the only one.")
@click.option("--recipe", "name", help="The recipe that should run: see `stack recipe list`.", shell_complete=complete_recipes)
@click.option(
    "--timeout", type=Seconds(), default=180, show_default=True, help="Seconds for all of the server's answers together."
)
@click.option("--verbose", "-v", is_flag=True, help="Show checks without problems, too.")
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
    """Find problems of a machine, scripts, a server's log or a running server.

    Each finding has its place, down to the line, and the fix. Nothing is changed. Exit code 1 if something is wrong; findings that
    are only worth knowing, and failed checks, do not count.
    """

    options: Options = context.obj
    recipe = recipes.load(name) if name is not None else None
    findings: list[Finding] = []
    if machine or not (scripts or logs or url):
        findings += _machine(options, python, recipe)
    if scripts:
        findings += _scripts(options, scripts, recipe)
    if logs:
        findings += _logs(options, logs, recipe)
    if url is not None:
        findings += _server(url, model, recipe, timeout)
    if as_json:
        print_json(_json(findings))
    else:
        _print(findings, verbose)
    context.exit(1 if any(finding.severity == "wrong" for finding in findings) else 0)


def _machine(options: Options, python: Path | None, recipe: Recipe | None) -> Iterator[Finding]:

    gathered = facts.gather(python or facts.interpreter(), options.load().pins, _utilization(recipe))
    return run(CHECKS, gathered, "this machine")


def _utilization(recipe: Recipe | None) -> float | None:
    """Return the share of the GPU's memory that a recipe takes."""

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
    for script_file in read:
        yield from scripts.look(scripts.ScriptSubject(script_file, unknown, target, flashinfer, frozenset(pinned)))


def _unknown(options: Options, read: Sequence[Script]) -> dict[str, Unknown] | None:
    """Return the settings in scripts that the patched trees at the pins do not know; None if the trees are not available."""

    stack: Stack = options.load()
    variables = {name for script_file in read for name in scripts.names(script_file)[0]}
    flags = {name for script_file in read for name in scripts.names(script_file)[1]}
    if not variables and not flags:
        return {}
    unknown: dict[str, Unknown] = {}
    try:
        with options.place() as place, Stores(stack, place) as stores:
            for pin in stack.pins:
                if pin.within is None:
                    objects, tip = stores.objects(pin.upstream), stores.tip(pin.upstream)
                    unknown |= {
                        setting.name: setting for setting in check_settings(objects, objects.tree_of(tip), variables, flags)
                    }
    except StackError:
        return None
    return unknown


def _target(recipe: Recipe | None) -> Target | None:
    """Return the machine that scripts are for: the recipe's, else this one if it has a GPU."""

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
    """Return the most tokens per second that the memory of the recipe's hardware allows; None if that is not modelled."""

    if recipe is None or recipe.hardware is None:
        return None
    try:
        return roofline.limit(recipe, hardware.load(recipe.hardware.name), _SPEED_AT)
    except StackError:
        return None


def _print(findings: Sequence[Finding], verbose: bool) -> None:
    """Print findings by place, worst first, each with its fix; without `verbose`, passed checks are only counted."""
    order = [*_SIGNS]
    for where in dict.fromkeys(finding.where for finding in findings):
        here = [finding for finding in findings if finding.where == where]
        shown = sorted(
            (finding for finding in here if verbose or finding.severity != "fine"),
            key=lambda finding: (order.index(finding.severity), finding.found.line or 0),
        )
        click.secho(one_line(where), bold=True)
        for finding in shown:
            sign = click.style(_SIGNS[finding.severity], fg=_COLOURS[finding.severity], bold=True)
            line = f"{finding.place}: " if finding.found.line else ""
            fact(f"{sign} {one_line(line + finding.found.what)} [{finding.check}]", indent="  ")
            if finding.found.fix:
                fact(f"{click.style('fix:', bold=True)} {one_line(finding.found.fix)}", indent="    ")
        folded = len(here) - len(shown)
        if folded:
            click.echo(f"  {click.style('✓', fg='green')} {folded} {'check is' if folded == 1 else 'checks are'} fine")
        click.echo()
    counts = [(name, sum(finding.severity == name for finding in findings)) for name in _SIGNS]
    click.echo(
        ", ".join(click.style(f"{count} {name}", fg=_COLOURS[name], bold=bool(count)) for name, count in counts if count)
    )


def _json(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "healthy": not any(finding.severity == "wrong" for finding in findings),
        "counts": {name: sum(finding.severity == name for finding in findings) for name in _SIGNS},
        "findings": [
            {
                "check": finding.check,
                "severity": str(finding.severity),
                "where": finding.where,
                "line": finding.found.line,
                "what": finding.found.what,
                "fix": finding.found.fix or None,
            }
            for finding in findings
        ],
    }
