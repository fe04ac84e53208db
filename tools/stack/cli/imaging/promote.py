# SPDX-License-Identifier: Apache-2.0
"""`stack image promote`: point moving tags at a published image."""

from pathlib import Path

import click

from stack.cli.common import json_option, print_json
from stack.cli.imaging.common import insecure_option, move_json, move_words, required_key_option
from stack.images import envelope, floating_tags, reference


@click.command("promote")
@click.argument("name", metavar="HOST/NAME:TAG|HOST/NAME@DIGEST")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@required_key_option
@click.option("--gate", help="The gate that it has to have passed. Default: any.")
@insecure_option
@json_option
def command(name: str, tags: tuple[str, ...], key: Path, gate: str | None, tls: bool, as_json: bool) -> None:
    """Point moving tags (latest, 0.32) at a published image, after verifying its attestations.

    A tag's earlier target is kept as TAG.previous, for `stack image rollback`. A tag that an image was published as never
    moves.
    """

    moves = floating_tags.promote(reference.parse(name), tags, envelope.public(key), gate, tls=tls)
    if as_json:
        print_json({"moves": [move_json(move) for move in moves]})
        return
    for move in moves:
        click.echo(move_words(move))
