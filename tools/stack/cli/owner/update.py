# SPDX-License-Identifier: Apache-2.0
"""`spark-stack update`: put a newer image in the place of the one that runs."""

from pathlib import Path

import click

from stack.cli.common import json_option
from stack.cli.owner import outcomes, starting
from stack.owner.newer import Permission


@click.command("update")
@starting.image_option
@starting.key_option
@starting.engine_option
@starting.timeout_option
@starting.wait_option
@starting.keep_free_option
@click.option("--older", is_flag=True, help="Take an image that is older than the one that runs.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    image: str | None,
    key: Path | None,
    engine: str | None,
    timeout: float,
    wait_for_memory: float | None,
    keep_free: float | None,
    older: bool,
    as_json: bool,
) -> None:
    """Pull and verify what the image's tag names now, or --image, and start it in the place of the server that runs.

    The server runs until the new image is here. If the new one gives no answer, or runs other kernels than the recipe expects, the old
    one comes back by itself: exit code 1. The old image stays in the engine: `spark-stack rollback` returns to it. An image that is older
    than the one that runs is refused, unless --image names its digest. Interrupted or killed, call it again: it goes on where it was.
    """

    with starting.changing(context.obj, engine, timeout, patience=wait_for_memory) as (owner, known):
        outcome = owner.update(known, image, key, keep_free, Permission.GIVEN if older else Permission.NONE)
        if outcome.failure is None and outcome.answered is None and outcome.serves is not None and not as_json:
            owner.place.tell("")
            outcomes.say_newest(outcome.serves)
            return
        context.exit(outcomes.show(outcome, owner.place, as_json=as_json))
