# SPDX-License-Identifier: Apache-2.0
"""`spark-stack recipes`: list the recipes that `spark-stack up` takes."""

import click

from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.sentences import say
from stack.deploy import recipes
from stack.deploy.recipes import Recipe


@click.command("recipes")
@json_option
@click.pass_obj
def command(options: Options, as_json: bool) -> None:
    """List the recipes that `spark-stack up` takes, with the machines that each is for.

    GB is the memory that a server takes on each machine. Tokens a second are those of one request, as somebody else has published them,
    mostly with other kernels: `stack recipe show` has the sources.
    """

    root = options.root_if_any()
    listed = [recipes.load(name, root) for name in recipes.known(root)]
    if as_json:
        print_json({"recipes": [_as_json(each) for each in listed]})
        return
    print_table(("recipe", "machines", "GB", "tok/s"), [_row(each) for each in listed])
    say("Start one:", "spark-stack up RECIPE --image IMAGE")


def _row(recipe: Recipe) -> tuple[str, ...]:
    on, speed = recipe.hardware, _speed(recipe)
    machines = "-" if on is None else on.name if on.nodes == 1 else f"{on.nodes} x {on.name}"
    return (recipe.name, machines, "-" if on is None else f"{on.memory:g}", "-" if speed is None else f"{speed:.0f}")


def _speed(recipe: Recipe) -> float | None:
    """Return the fastest published speed of one request."""
    return max((each.decode for each in recipe.speeds if each.requests == 1), default=None)


def _as_json(recipe: Recipe) -> dict[str, object]:
    on = recipe.hardware
    return {
        "name": recipe.name,
        "title": recipe.title,
        "hardware": on.name if on is not None else None,
        "nodes": on.nodes if on is not None else 1,
        "memory": on.memory if on is not None else None,
        "tokens_per_second": _speed(recipe),
    }
