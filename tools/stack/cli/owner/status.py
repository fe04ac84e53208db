# SPDX-License-Identifier: Apache-2.0
"""`spark-stack status`: show the server, its image and its model."""

import click

from stack.cli.common import json_option, print_json
from stack.cli.rendering import text
from stack.cli.sentences import say
from stack.owner import engine as engines
from stack.owner import state
from stack.owner.engine import Container
from stack.owner.state import Setup, State


@click.command("status")
@json_option
def command(as_json: bool) -> None:
    """Show the server on one screen: whether it runs, its recipe, image and model, and what is not finished."""

    known = state.read(state.path())
    container = engines.Engine(known.engine).container(known.container) if known is not None else None
    if as_json:
        print_json(_as_json(known, container))
    elif known is None:
        say("There is no server yet. Start one:", "spark-stack up RECIPE --image IMAGE")
    else:
        _print(known, container)


def _print(known: State, container: Container | None) -> None:
    runs = container is not None and container.running
    setup = known.now
    text.echo(text.styled(_summary(setup, runs=runs), "bold"))
    if known.work is not None:
        say(
            f"Not finished: {known.work.verb} of {known.work.recipe}, at the step {known.work.step}. Go on:",
            f"spark-stack {known.work.verb}",
        )
    rows = [("engine", known.engine), ("container", known.container)]
    if setup is not None:
        model = setup.model
        rows += [
            ("image", f"{setup.image.name} ({setup.image.digest})"),
            ("signature", "verified" if setup.image.signed else "not verified: no key was given"),
            ("model", f"{model.repository} at {model.revision}" if model.repository else model.folder),
        ]
    if known.before is not None:
        rows += [("before", f"{known.before.recipe}, {known.before.image.name} ({known.before.image.digest})")]
    for name, value in rows:
        text.echo(f"{name:<10} {value}")


def _summary(setup: Setup | None, *, runs: bool) -> str:
    if setup is None:
        return "no server has answered yet"
    return f"{setup.recipe} {f'runs at {setup.url}' if runs else 'does not run'}"


def _as_json(known: State | None, container: Container | None) -> dict[str, object]:
    work = known.work if known is not None else None
    return {
        "runs": container is not None and container.running,
        "engine": known.engine if known is not None else None,
        "container": known.container if known is not None else None,
        "now": _setup(known.now) if known is not None else None,
        "before": _setup(known.before) if known is not None else None,
        "unfinished": {"verb": work.verb, "step": str(work.step), "recipe": work.recipe} if work is not None else None,
    }


def _setup(setup: Setup | None) -> dict[str, object] | None:
    if setup is None:
        return None
    return {
        "recipe": setup.recipe,
        "url": setup.url,
        "open": setup.opened,
        "image": setup.image.name,
        "digest": setup.image.digest,
        "signed": setup.image.signed,
        "model": setup.model.repository or setup.model.folder,
        "revision": setup.model.revision,
    }
