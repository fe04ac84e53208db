# SPDX-License-Identifier: Apache-2.0
"""`stack undo`: restore the state before the last switch."""

import click

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.sentences import say
from stack.model import switch


@click.command("undo")
@click.option("--list", "show", is_flag=True, help="List the switches that can be undone, newest first; change nothing.")
@click.option("--finish", is_flag=True, help="Finish a switch that was interrupted half-way; undo nothing.")
@click.option("--adopt", is_flag=True, help="Take over the history of your own checkout after moving or copying it.")
@json_option
@click.pass_obj
def command(options: Options, show: bool, finish: bool, adopt: bool, as_json: bool) -> None:
    """Restore the state before the last rebase, refresh or pins set; `stack redo` repeats it.

    Resolutions stay: only `stack resolutions drop` removes them. Run it again to go back one further. It refuses if a file has
    changed since, since that change would be lost.
    """

    if show + finish + adopt > 1:
        raise click.UsageError("--list, --finish and --adopt are different jobs: give one of them")
    root = options.find_root()
    if adopt:
        switch.adopt(root)
    if finish and not switch.recover(root) and not as_json:
        say("nothing to finish: no switch was interrupted")
        return
    if show or finish or adopt:
        with switch.reading(root):
            records = tuple(reversed(switch.history(root)))
        if as_json:
            print_json(
                {
                    "switches": [
                        {"number": record.number, "title": record.title, "paths": list(record.changes)} for record in records
                    ]
                },
                "undo-list",
            )
        else:
            print_table(
                ("", "switch", "files"), [(str(record.number), record.title, str(len(record.changes))) for record in records]
            )
        return
    switch.recover(root)
    undone = switch.undo(root)
    if as_json:
        print_json({"undone": undone.title, "paths": list(undone.changes)})
    else:
        say(f"undone: {undone.title} ({counted(len(undone.changes), 'file')})")
