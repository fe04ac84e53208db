# SPDX-License-Identifier: Apache-2.0
"""`stack image rollback`: move a tag back to its earlier target."""

import click

from stack.cli.common import json_option, print_json
from stack.cli.imaging.common import insecure_option, move_json, move_words, trust_options
from stack.images import floating_tags, reference
from stack.images.trust import Trusted


@click.command("rollback")
@click.argument("name", metavar="HOST/NAME:TAG")
@trust_options(required=True)
@insecure_option
@json_option
def command(name: str, trusted: Trusted, tls: bool, as_json: bool) -> None:
    """Point a moving tag at the image that it pointed at before; a second call reverses the first."""

    move = floating_tags.rollback(reference.parse(name), trusted, tls=tls)
    if as_json:
        print_json({"moves": [move_json(move)]})
    else:
        click.echo(move_words(move))
