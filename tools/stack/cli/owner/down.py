# SPDX-License-Identifier: Apache-2.0
"""`spark-stack down`: stop the server."""

import click

from stack.cli.common import json_option, print_json
from stack.cli.owner import starting
from stack.cli.sentences import say


@click.command("down")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Remove the images of the servers and the code that they compiled, too; the model stays.",
)
@starting.engine_option
@json_option
@click.pass_context
def command(context: click.Context, everything: bool, engine: str | None, as_json: bool) -> None:
    """Stop the server and remove its container. Images, the model, and what was compiled stay.

    A start or an update that is not finished is given up.
    """

    with starting.changing(context.obj, engine) as (owner, known):
        was = owner.down(known, everything=everything)
        owner.place.tell("")
    if as_json:
        print_json({"stopped": was})
        return
    if everything:
        say("The server, its images and its compiled code are removed. The model stays in Hugging Face's cache.")
        return
    again = "spark-stack up" if known.now is not None else "spark-stack up RECIPE --image IMAGE"
    say("The server is stopped. Start it again:" if was else "No server runs. Start one:", again)
