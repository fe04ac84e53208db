# SPDX-License-Identifier: Apache-2.0
"""Options and output shared by the verbs that use a registry."""

import sys
from pathlib import Path

import click
from securesystemslib.signer import SSlibKey

from stack.base.errors import StackError
from stack.base.text import counted
from stack.images import envelope, processors, reference
from stack.images.floating_tags import Move
from stack.images.reference import Reference

IMAGES = Path(".stack/images")
"""The default folder of images, below the stack."""
file_path = click.Path(path_type=Path, exists=True, dir_okay=False)
insecure_option = click.option(
    "--tls/--no-tls", default=True, help="Whether registries need a trusted certificate.", show_default=True
)
public_option = click.option(
    "--key", type=file_path, help="The publisher's public key (PEM); attestations by others are ignored."
)
required_key_option = click.option(
    "--key", type=file_path, required=True, help="The publisher's public key (PEM); attestations by others are ignored."
)


def as_platform(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Read a platform in any spelling: linux/arm64, arm64 or aarch64."""
    return processors.platform_of(value) if value is not None else None


def layout(named: str | None, root: Path) -> Reference:
    """Return the layout that `--image` names, or the only one of the stack in `root`.

    Raises:
        StackError: the name is not a layout, or the stack does not have exactly one.

    """

    if named is None:
        return _only(root / IMAGES)
    named_reference = reference.parse(named)
    if not named_reference.layout:
        raise StackError(
            f"{named_reference.shown} is not an OCI layout", "name one with --image oci:DIR; stack image build writes it"
        )
    return named_reference


def _only(folder: Path) -> Reference:

    layouts = sorted(place.parent for place in folder.glob("*/oci-layout"))
    if len(layouts) != 1:
        names = ", ".join(f"oci:{folder_}" for folder_ in layouts) or "stack image build writes one"
        raise StackError(f"{folder} has {counted(len(layouts), 'image')}", f"name one with --image ({names})")
    return Reference(str(layouts[0]), layout=True)


def public(key: Path | None) -> SSlibKey | None:
    """Load the public key from a file."""

    return envelope.public(key) if key is not None else None


def step(text: str) -> None:
    """Print the name of the step that begins, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(text, err=True)


def move_json(move: Move) -> dict[str, str | None]:
    """Convert a tag's move for `--json`."""
    return {"tag": move.tag, "before": move.before, "after": move.after}


def move_words(move: Move) -> str:
    """Describe a tag's move."""
    if move.before == move.after:
        return f"{move.tag} is at {move.after} already"
    return f"{move.tag} -> {move.after}" + (f", was {move.before}" if move.before else ", is new")
