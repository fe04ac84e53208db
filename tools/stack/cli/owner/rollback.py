# SPDX-License-Identifier: Apache-2.0
"""`spark-stack rollback`: return to the server that ran before."""

import click

from stack.cli.common import json_option
from stack.cli.owner import outcomes, starting
from stack.cli.sentences import say


@click.command("rollback")
@starting.engine_option
@starting.timeout_option
@starting.wait_option
@json_option
@click.pass_context
def command(context: click.Context, engine: str | None, timeout: float, wait_for_memory: float | None, as_json: bool) -> None:
    """Start the server that ran before this one: its image, recipe and flags. Called again, it returns to the newer one.

    A start or an update that is not finished is given up: the server before it comes back, if there was one. If the server before gives no
    answer, the one that ran comes back: exit code 1.
    """

    with starting.changing(context.obj, engine, timeout, patience=wait_for_memory) as (owner, known):
        outcome = owner.rollback(known)
        if outcome.serves is None and outcome.failure is None and not as_json:
            owner.place.tell("")
            say("The start that was not finished is given up. No server ran before it.")
            return
        context.exit(outcomes.show(outcome, owner.place, as_json=as_json))
