# SPDX-License-Identifier: Apache-2.0
"""What the verbs that ask a registry share: options, steps."""

import sys
from pathlib import Path

import click
from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.images import envelope, reference
from stack.images.floating_tags import Move
from stack.images.reference import Reference

IMAGES = Path(".stack/images")
"""Where images lie unless something else is named, below the stack."""
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


def layout(named: str | None, root: Path) -> Reference:
    """The image that `--image` names, or the only one that the stack in `root` has.

    Raises:
        StackError: it is no layout; there is none, or more than one.

    """

    if named is None:
        return _only(root / IMAGES)
    found = reference.parse(named)
    if not found.layout:
        raise StackError(f"{found.shown} is no OCI layout", "name one with --image oci:DIR; stack image build writes it")
    return found


def _only(folder: Path) -> Reference:

    found = sorted(place.parent for place in folder.glob("*/oci-layout"))
    if len(found) != 1:
        names = ", ".join(f"oci:{one}" for one in found) or "stack image build writes one"
        raise StackError(f"{folder} has {len(found)} images", f"name one with --image ({names})")
    return Reference(str(found[0]), layout=True)


def public(key: Path | None) -> SSlibKey | None:
    """The public key in a file."""

    return envelope.public(key) if key is not None else None


def step(text: str) -> None:
    """Say which step begins, on a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def move_json(one: Move) -> dict[str, str | None]:
    """A tag's move."""
    return {"tag": one.tag, "before": one.before, "after": one.after}


def move_words(one: Move) -> str:
    """A tag's move in words."""
    if one.before == one.after:
        return f"{one.tag} is there already"
    return f"{one.tag} -> {one.after}" + (f", was {one.before}" if one.before else ", is new")
