# SPDX-License-Identifier: Apache-2.0
"""`stack image rollback`: move a tag back to its earlier target."""

from pathlib import Path

import click

from stack.cli.common import json_option, print_json
from stack.cli.imaging.common import insecure_option, move_json, move_words, required_key_option
from stack.images import envelope, floating_tags, reference


@click.command("rollback")
@click.argument("name", metavar="HOST/NAME:TAG")
@required_key_option
@insecure_option
@json_option
def command(name: str, key: Path, tls: bool, as_json: bool) -> None:
    """Point a moving tag at the image that it pointed at before; a second call reverses the first."""

    move = floating_tags.rollback(reference.parse(name), envelope.public(key), tls=tls)
    if as_json:
        print_json({"moves": [move_json(move)]})
    else:
        click.echo(move_words(move))
