# SPDX-License-Identifier: Apache-2.0
"""`stack undo`: back to the state before the last switch."""

import click

from stack.cli.common import Options, json_option, print_json, print_table
from stack.model import switch


@click.command("undo")
@click.option("--list", "show", is_flag=True, help="Show what can be taken back, newest first; change nothing.")
@click.option("--finish", is_flag=True, help="Finish a switch that was interrupted half-way; take nothing back.")
@click.option("--adopt", is_flag=True, help="Take over the history of your own checkout after moving or copying it.")
@json_option
@click.pass_obj
def command(options: Options, show: bool, finish: bool, adopt: bool, as_json: bool) -> None:
    """Bring back the state before the last rebase, refresh or pins set; `stack redo` makes it again.

    Resolutions stay: only `stack resolutions drop` removes one. Again, and it goes one further back. Refused where a file was
    changed since: that change would be lost.
    """

    if show + finish + adopt > 1:
        raise click.UsageError("--list, --finish and --adopt are different jobs: give one of them")
    root = options.find_root()
    if adopt:
        switch.adopt(root)
    if finish:
        switch.recover(root)
    if show or finish or adopt:
        with switch.reading(root):
            records = tuple(reversed(switch.history(root)))
        if as_json:
            print_json(
                {"switches": [{"number": one.number, "title": one.title, "paths": list(one.changes)} for one in records]}
            )
        else:
            print_table(("", "switch", "files"), [(str(one.number), one.title, str(len(one.changes))) for one in records])
        return
    switch.recover(root)
    undone = switch.undo(root)
    if as_json:
        print_json({"undone": undone.title, "paths": list(undone.changes)})
    else:
        click.echo(f"undone: {undone.title} ({len(undone.changes)} files)")
