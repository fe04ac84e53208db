# SPDX-License-Identifier: Apache-2.0
"""`spark-stack down`: stop the server."""

import click

from stack.cli.common import json_option, print_json
from stack.cli.owner import starting
from stack.cli.sentences import say


@click.command("down")
@starting.engine_option
@json_option
@click.pass_context
def command(context: click.Context, engine: str | None, as_json: bool) -> None:
    """Stop the server and remove its container. Images, the model, and what was compiled stay.

    An update that is not finished is given up.
    """

    with starting.changing(context.obj, engine) as (owner, known):
        was = owner.down(known)
        owner.place.tell("")
    if as_json:
        print_json({"stopped": was})
        return
    again = "spark-stack up" if known.now is not None else "spark-stack up RECIPE --image IMAGE"
    say("The server is stopped. Start it again:" if was else "No server runs. Start one:", again)
