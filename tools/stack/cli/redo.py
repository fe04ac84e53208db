# SPDX-License-Identifier: Apache-2.0
"""`stack redo`: repeat the switch that `stack undo` reverted."""

import click

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json
from stack.model import switch


@click.command("redo")
@json_option
@click.pass_obj
def command(options: Options, as_json: bool) -> None:
    """Repeat the switch that `stack undo` took back last.

    Run it again to repeat the one before. It refuses if a file has changed since, since that change would be lost.
    """

    made = switch.redo(options.find_root(writes=True))
    if as_json:
        print_json({"redone": made.title, "paths": list(made.changes)})
    else:
        click.echo(f"redone: {made.title} ({counted(len(made.changes), 'file')})")
