# SPDX-License-Identifier: Apache-2.0
"""`spark-stack logs`: show the server's log, and follow it."""

import subprocess
import sys

import click

from stack.base.errors import StackError
from stack.cli.common import json_option, print_json
from stack.owner import engine as engines
from stack.owner import state

_LINES = 100


@click.command("logs")
@click.option("--lines", type=click.IntRange(0), default=_LINES, show_default=True, help="Begin with this many last lines.")
@click.option("--no-follow", is_flag=True, help="End after the last line, instead of waiting for more.")
@json_option
def command(lines: int, no_follow: bool, as_json: bool) -> None:
    """Show the last lines of the server's log, and follow it until Ctrl-C.

    The log of a server that did not start is in a file of its own: `spark-stack status` names it.
    """

    known = state.read(state.path())
    engine = engines.Engine(known.engine) if known is not None else None
    container = engine.container(known.container) if known is not None and engine is not None else None
    if known is None or engine is None or container is None:
        raise StackError("no container of the server is here", "start it: spark-stack up")
    show = ("logs", f"--tail={lines}", known.container)
    if as_json:
        text = engine.output(*show).decode("utf-8", "replace")
        print_json({"container": known.container, "lines": text.splitlines()})
        return
    follow = [] if no_follow or not container.running else ["--follow"]
    sys.stdout.flush()
    try:
        subprocess.run([engine.name, show[0], *follow, *show[1:]], stdin=subprocess.DEVNULL, check=False)
    except KeyboardInterrupt:
        return  # following ends by Ctrl-C
