# SPDX-License-Identifier: Apache-2.0
"""`spark-stack status`: show the server, its image and its model."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json
from stack.cli.owner import outcomes, starting
from stack.cli.rendering import text
from stack.cli.sentences import fact, say
from stack.deploy import recipes
from stack.deploy.recipes import Recipe
from stack.owner import looking, state, state_file
from stack.owner.looking import Condition, Look
from stack.owner.state import State


@click.command("status")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Show the server on one screen: whether it answers, its recipe, image and model, and what is not finished."""

    file = state.path()
    known = state_file.read(file)
    looked = looking.look(known, _recipe(context.obj, known)) if known is not None else None
    failed = file.with_name(starting.FAILED)
    kept = failed if failed.exists() else None
    if as_json:
        print_json(_as_json(known, looked, kept))
    elif known is None or looked is None or not any((known.now, known.target, known.work, kept)):
        say("There is no server yet. Start one:", "spark-stack up RECIPE --image IMAGE")
    else:
        _print(known, looked, kept)


def _recipe(options: Options, known: State | None) -> Recipe | None:
    """Return the recipe of the server that runs; None if it is not known here any more."""
    setup = (known.target or known.now) if known is not None else None
    try:
        return recipes.load(setup.recipe, options.root_if_any()) if setup is not None else None
    except StackError:
        return None


def _print(known: State, looked: Look, failed: Path | None) -> None:
    text.echo(text.styled(_summary(known, looked), "bold"))
    if known.work is not None:
        say(
            f"Not finished: {known.work.verb} of {known.work.wanted.recipe}, at the step {known.work.step}. Go on:",
            known.work.command,
        )
        say("Give it up:", "spark-stack rollback" if known.now is not None else "spark-stack down")
    elif looked.condition is Condition.OUT_OF_MEMORY:
        say("Look at what else takes memory (`spark-stack doctor`), then start it again:", "spark-stack up")
    elif looked.condition is Condition.ABSENT:
        say("Start it:", "spark-stack up" if known.now is not None else "spark-stack up RECIPE --image IMAGE")
    restarted = f", restarted {counted(looked.restarts, 'time')}" if looked.restarts else ""
    rows = [("engine", f"{known.engine}, container {known.container}{restarted}")]
    if looked.why is not None:
        rows.append(("reason", looked.why))
    setup = known.target or known.now
    if setup is not None:
        rows += [
            ("image", f"{setup.image.name} ({setup.image.digest}), {outcomes.signature(setup)}"),
            ("model", outcomes.model(setup)),
            ("reached", f"at {setup.url}{', from other machines, too' if setup.opened else ', from this machine only'}"),
            *([("memory", f"{setup.keep_free:g} GB are kept free")] if setup.keep_free else []),
        ]
    rows += [(host, "runs" if runs else "does not run") for host, runs in looked.others]
    if known.before is not None:
        rows.append(("before", f"{known.before.recipe}, {known.before.image.name} ({known.before.image.digest})"))
    if failed is not None:
        rows.append(("log", f"of the last start that failed: {failed}"))
    width = max(8, *(len(name) for name, _ in rows))
    for name, value in rows:
        fact(f"{name:<{width}} {value}", below=" " * (width + 1))


def _summary(known: State, looked: Look) -> str:
    setup = known.target or known.now
    name = setup.recipe if setup is not None else "the server"
    match looked.condition:
        case Condition.ANSWERS:
            return f"{name} answers"
        case Condition.OTHER:
            return f"{name} does not answer as it should"
        case Condition.OUT_OF_MEMORY:
            return f"{name} was ended before the machine ran out of memory"
        case Condition.STARTING:
            return f"{name} is starting{f': {looked.stage}' if looked.stage else ''}"
        case Condition.STOPPED:
            return f"{name} has ended with {looked.exit_code}"
    return f"{name} does not run"


def _as_json(known: State | None, looked: Look | None, failed: Path | None) -> dict[str, object]:
    work = known.work if known is not None else None
    return {
        "condition": str(looked.condition) if looked is not None else str(Condition.ABSENT),
        "stage": looked.stage if looked is not None else None,
        "why": looked.why if looked is not None else None,
        "restarts": looked.restarts if looked is not None else 0,
        "nodes": [{"host": host, "runs": runs} for host, runs in (looked.others if looked is not None else ())],
        "engine": known.engine if known is not None else None,
        "container": known.container if known is not None else None,
        "now": outcomes.as_json(known.now) if known is not None else None,
        "before": outcomes.as_json(known.before) if known is not None else None,
        "unfinished": {"verb": work.verb, "step": str(work.step), "recipe": work.wanted.recipe} if work is not None else None,
        "failed_log": str(failed) if failed is not None else None,
    }
