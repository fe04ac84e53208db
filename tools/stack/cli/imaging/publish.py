# SPDX-License-Identifier: Apache-2.0
"""`stack image publish`: sign a validated image, and publish it under a tag that never changes."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry import effects
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.imaging.common import (
    IMAGES,
    file_path,
    insecure_option,
    layout,
    move_json,
    move_words,
    step,
    trust_config_option,
)
from stack.cli.lane_options import lane_option
from stack.images import combining, envelope, policy, reference
from stack.images import keyless as keyless_signing
from stack.images import publish as publishing
from stack.images.reference import Reference

_BOMS = ("*.cdx.json", "*.spdx.json")


@click.command("publish")
@click.argument("name", metavar="HOST/NAME:TAG")
@click.option("--gate", required=True, help="The gate that it has to have passed, by its name.")
@click.option(
    "--verdict",
    "verdicts",
    type=file_path,
    multiple=True,
    required=True,
    help="Verdict of a validation inside it; may be repeated.",
)
@click.option("--key", type=file_path, help="The private key to sign with (PEM; ECDSA P-256 or Ed25519).")
@click.option(
    "--keyless",
    is_flag=True,
    help="Sign as the identity of the CI's OIDC token, with a short certificate. Default without --key, where the CI gives a token.",
)
@click.option("--identity", help="With --keyless: the identity in the certificate. Default: from the token.")
@click.option("--issuer", metavar="URL", help="With --keyless: the issuer in the certificate. Default: the token's.")
@trust_config_option
@click.option(
    "--signers",
    type=file_path,
    help="File with the signers whose verdicts count (OpenSSH's allowed_signers), outside of the checkout. Default: allowed_signers in "
    "the user's configuration folder of stack.",
)
@click.option(
    "--gates",
    "gates_file",
    type=file_path,
    help="File with the gates, outside of the checkout. Default: gates.toml in the same folder.",
)
@click.option(
    "--protected",
    metavar="REMOTE/BRANCH",
    help="Take signers and gates from this branch as it was fetched; a pull request's changes to them are ignored.",
)
@click.option(
    "--image",
    "sources",
    metavar="oci:DIR",
    multiple=True,
    help=f"The image; several of different platforms become one index. Default: the only one in the stack's {IMAGES}.",
)
@click.option(
    "--sbom",
    "boms",
    type=file_path,
    multiple=True,
    help="Bill of materials, CycloneDX or SPDX in JSON; may be repeated. Default: those in the layout.",
)
@click.option("--move", "moves", metavar="TAG", multiple=True, help="Also point this moving tag at it; may be repeated.")
@insecure_option
@source_option
@json_option
@lane_option
@click.pass_context
def command(
    context: click.Context,
    name: str,
    gate: str,
    verdicts: tuple[Path, ...],
    key: Path | None,
    keyless: bool,
    identity: str | None,
    issuer: str | None,
    trust_config: Path | None,
    signers: Path | None,
    gates_file: Path | None,
    protected: str | None,
    sources: tuple[str, ...],
    boms: tuple[Path, ...],
    moves: tuple[str, ...],
    tls: bool,
    source: str | None,
    as_json: bool,
) -> None:
    """Publish an image that has passed GATE, by verdicts of exactly this image and stack with trusted signatures.

    It is pushed by its digest. Its provenance, a verification summary, bills of materials and the verdicts are signed and
    attached. Then everything is read back and verified, and the tag is set last. A tag never changes. Credentials are those of
    `skopeo login`. The exit code is 1 if the image may not be published.
    """

    options: Options = context.obj
    signer = _signer(key, keyless, identity, issuer, trust_config)
    stack = options.load()
    images = [layout(source_name, stack.root) for source_name in sources or (None,)]
    found_boms = {file for image in images for pattern in _BOMS for file in Path(image.place).glob(pattern)}
    try:
        with _one(images) as image, policy.trusted(stack.root, gates_file, signers, protected) as trusted:
            with options.place(source) as place, Stores(stack, place) as stores:
                effects.check(stores)
            request = publishing.PublishRequest(
                reference.parse(name), image, gate, verdicts, trusted, boms or tuple(sorted(found_boms)), moves, tls
            )
            done = publishing.publish(request, stack, signer, step)
    except publishing.NotAdmittedError as refused:
        if as_json:
            print_json({"published": False, "digest": None, "new": False, "moves": [], "problems": list(refused.problems)})
        else:
            for problem in refused.problems:
                click.echo(problem)
            click.echo(f"gate {gate}: not passed, nothing was pushed")
        context.exit(1)
    if as_json:
        moved = [move_json(one) for one in done.moves]
        print_json({"published": True, "digest": done.digest, "new": done.new, "moves": moved, "problems": []})
        return
    click.echo(f"{request.name.shown} {'is published' if done.new else 'was published before'}")
    click.echo(f"digest {done.digest}")
    for move in done.moves:
        click.echo(move_words(move))


def _signer(
    key: Path | None, keyless: bool, identity: str | None, issuer: str | None, trust_config: Path | None
) -> publishing.Signer:
    """Return the signer that the options name.

    Raises:
        StackError: They name none or two.

    """
    if key is not None:
        if keyless or identity or issuer or trust_config:
            raise StackError("--key is given with options of keyless signatures", "sign with a key, or with --keyless")
        return envelope.signer(key)
    if keyless or keyless_signing.ambient():
        return keyless_signing.signer(trust_config, identity, issuer)
    raise StackError("nobody signs", "give --key FILE, or run it in a CI that gives a token (--keyless)")


@contextmanager
def _one(images: Sequence[Reference]) -> Iterator[Reference]:
    """Provide the image, or an index of several, while the block runs."""

    if len(images) == 1:
        yield images[0]
        return
    # In the first image's folder, so that files can be hard-linked.
    with tempfile.TemporaryDirectory(prefix=".index-", dir=Path(images[0].place).absolute().parent) as folder:
        yield combining.combine(images, Path(folder) / "image")
