# SPDX-License-Identifier: Apache-2.0
"""`stack image promote`: point moving tags at a published image."""

import click

from stack.cli.common import json_option, print_json
from stack.cli.imaging.common import insecure_option, move_json, move_words, trust_options
from stack.images import floating_tags, reference
from stack.images.trust import Trusted


@click.command("promote")
@click.argument("name", metavar="HOST/NAME:TAG|HOST/NAME@DIGEST")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@trust_options(required=True)
@click.option("--gate", help="The gate that it has to have passed. Default: any.")
@insecure_option
@json_option
def command(name: str, tags: tuple[str, ...], trusted: Trusted, gate: str | None, tls: bool, as_json: bool) -> None:
    """Point moving tags (latest, 0.32) at a published image, after verifying its attestations.

    A tag's earlier target is kept as TAG.previous, for `stack image rollback`. A tag that an image was published as never
    moves.
    """

    moves = floating_tags.promote(reference.parse(name), tags, trusted, gate, tls=tls)
    if as_json:
        print_json({"moves": [move_json(move) for move in moves]})
        return
    for move in moves:
        click.echo(move_words(move))
