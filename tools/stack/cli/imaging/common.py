# SPDX-License-Identifier: Apache-2.0
"""Options and output shared by the verbs that use a registry."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.images import envelope, keyless, processors, reference
from stack.images.floating_tags import Move
from stack.images.reference import Reference
from stack.images.trust import Trusted

IMAGES = Path(".stack/images")
"""The default folder of images, below the stack."""
file_path = click.Path(path_type=Path, exists=True, dir_okay=False)
insecure_option = click.option(
    "--tls/--no-tls", default=True, help="Whether registries need a trusted certificate.", show_default=True
)
trust_config_option = click.option(
    "--trust-config",
    type=file_path,
    help="Trust configuration of a Sigstore instance, or its trusted root (JSON). Default: that of sigstore.dev.",
)
_TRUST = (
    click.option("--key", type=file_path, help="The publisher's public key (PEM); attestations by others are ignored."),
    click.option(
        "--identity", help="The publisher's identity in keyless signatures: a workflow's address, or an e-mail address."
    ),
    click.option("--issuer", metavar="URL", help="The OIDC issuer that vouches for the identity."),
    trust_config_option,
)


def trust_options(*, required: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options that say whose attestations count; the command gets them as `trusted`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(
            *args: Any, key: Path | None, identity: str | None, issuer: str | None, trust_config: Path | None, **options: Any
        ) -> None:
            command(*args, trusted=trusted(key, identity, issuer, trust_config, required=required), **options)

        for option in reversed(_TRUST):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def trusted(
    key: Path | None, identity: str | None, issuer: str | None, trust_config: Path | None, *, required: bool
) -> Trusted | None:
    """Return the key or the identity whose attestations count.

    Raises:
        StackError: The options contradict each other, or none is given although one is required.

    """
    if key is not None and (identity or issuer or trust_config):
        raise StackError("--key is given with options of keyless signatures", "name a key, or an identity and its issuer")
    if key is not None:
        return envelope.public(key)
    if identity and issuer:
        return keyless.identity(identity, issuer, trust_config)
    if identity or issuer or trust_config:
        raise StackError("an identity counts only with its issuer", "give --identity and --issuer")
    if required:
        raise StackError("nobody's attestations are trusted", "give --key, or --identity and --issuer")
    return None


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
