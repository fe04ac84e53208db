# SPDX-License-Identifier: Apache-2.0
"""What the verbs that ask a registry share: options, steps."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from securesystemslib.signer import SSlibKey

    from stack.images.moving import Move

file_path = click.Path(path_type=Path, exists=True, dir_okay=False)
insecure_option = click.option(
    "--tls/--no-tls", default=True, help="Whether registries have to have a trusted certificate.", show_default=True
)
public_option = click.option(
    "--key", type=file_path, help="The publisher's public key (PEM); what others signed counts for nothing."
)
required_key_option = click.option(
    "--key", type=file_path, required=True, help="The publisher's public key (PEM); what others signed counts for nothing."
)


def public(key: Path | None) -> "SSlibKey | None":
    """The public key in a file."""
    from stack.images import envelope  # noqa: PLC0415

    return envelope.public(key) if key is not None else None


def step(text: str) -> None:
    """Say which step begins, on a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def move_json(one: "Move") -> dict[str, str | None]:
    """A tag's move."""
    return {"tag": one.tag, "before": one.before, "after": one.after}


def move_words(one: "Move") -> str:
    """A tag's move in words."""
    if one.before == one.after:
        return f"{one.tag} is there already"
    return f"{one.tag} -> {one.after}" + (f", was {one.before}" if one.before else ", is new")
