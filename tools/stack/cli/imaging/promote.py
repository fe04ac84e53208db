# SPDX-License-Identifier: Apache-2.0
"""`stack image promote`: moving tags to a published image."""

from pathlib import Path

import click

from stack.cli.common import json_option, print_json
from stack.cli.imaging.common import insecure_option, move_json, move_words, required_key_option
from stack.images import envelope, floating_tags, reference


@click.command("promote")
@click.argument("name", metavar="HOST/NAME:TAG|HOST/NAME@DIGEST")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@required_key_option
@click.option("--gate", help="Which gate it has to have passed; any unless given.")
@insecure_option
@json_option
def command(name: str, tags: tuple[str, ...], key: Path, gate: str | None, tls: bool, as_json: bool) -> None:
    """Point moving tags (latest, 0.32) at a published image, after its attestations were verified.

    Where a tag pointed before is kept as TAG.previous, for `stack image rollback`. A tag that something was published as never
    moves.
    """

    moves = floating_tags.promote(reference.parse(name), tags, envelope.public(key), gate, tls=tls)
    if as_json:
        print_json({"moves": [move_json(one) for one in moves]})
        return
    for one in moves:
        click.echo(move_words(one))
