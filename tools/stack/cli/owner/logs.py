# SPDX-License-Identifier: Apache-2.0
"""`spark-stack logs`: show the server's log, and follow it."""

import subprocess
import sys
import threading

import click

from stack.base.errors import StackError
from stack.base.text import printable
from stack.cli.common import json_option, print_json
from stack.cli.owner import starting
from stack.owner import engine as engines
from stack.owner import state, state_file
from stack.owner.engine import Engine
from stack.owner.nodes import followers, kept
from stack.owner.state import State

_LINES = 100


@click.command("logs")
@click.option("--lines", type=click.IntRange(0), default=_LINES, show_default=True, help="Begin with this many last lines.")
@click.option("--no-follow", is_flag=True, help="End after the last line, instead of waiting for more.")
@json_option
def command(lines: int, no_follow: bool, as_json: bool) -> None:
    """Show the last lines of the server's log, and follow it until Ctrl-C.

    The log of a server that did not start is in a file of its own: `spark-stack status` names it.
    """

    known = state_file.read(state.path())
    engine = engines.Engine(known.engine) if known is not None else None
    container = engine.container(known.container) if known is not None and engine is not None else None
    if known is None or engine is None or container is None:
        raise StackError("there is no container of the server", _remedy(known))
    show = ("logs", f"--tail={lines}", known.container)
    if as_json:
        text = engine.output(*show).decode("utf-8", "replace")
        print_json({"container": known.container, "lines": text.splitlines()})
        return
    follow = [] if no_follow or not container.running else ["--follow"]
    sys.stdout.flush()
    words = (show[0], *follow, *show[1:])
    try:
        if known.now is not None and known.now.spread:
            _show_all(engine, words)
        else:
            _show_one("", engine.words(*words))
    except KeyboardInterrupt:
        return  # following ends by Ctrl-C


def _remedy(known: State | None) -> str:
    failed = state.path().with_name(starting.FAILED)
    if failed.exists():
        return f"the log of the last start that failed is in {failed}"
    if known is not None and known.now is not None:
        return "start it: spark-stack up"
    return "start one: spark-stack up RECIPE --image IMAGE"


def _show_all(engine: Engine, words: tuple[str, ...]) -> None:
    """Show the logs of all nodes at once, each line behind its machine's name."""
    members = kept.read(kept.path())
    named = [(members[0].host if members else "here", engine)]
    named += [(each.host, each.engine) for each in followers.of(members, engine.name)]
    width = max(len(host) for host, _ in named)
    threads = [
        threading.Thread(target=_show_one, args=(f"{host:<{width}} | ", each.words(*words)), daemon=True)
        for host, each in named
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _show_one(prefix: str, words: list[str]) -> None:
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sys.stdout.write(prefix + printable(line.decode("utf-8", "replace").rstrip("\r\n")) + "\n")
                sys.stdout.flush()
        finally:
            process.terminate()
