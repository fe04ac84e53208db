# SPDX-License-Identifier: Apache-2.0
"""`stack redo`: make the switch again that `stack undo` took back."""

import click

from stack.cli.common import Options, json_option, print_json
from stack.model import switch


@click.command("redo")
@json_option
@click.pass_obj
def command(options: Options, as_json: bool) -> None:
    """Make the switch again that `stack undo` took back last.

    Again, and it makes the one before. Refused where a file was changed since: that change would be lost.
    """

    made = switch.redo(options.find_root(writes=True))
    if as_json:
        print_json({"redone": made.title, "paths": list(made.changes)})
    else:
        click.echo(f"redone: {made.title} ({len(made.changes)} files)")
