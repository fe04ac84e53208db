# SPDX-License-Identifier: Apache-2.0
"""`stack image publish`: a validated image, signed, under a tag that never changes."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from stack.carry import effects
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option
from stack.cli.imaging.common import IMAGES, file_path, insecure_option, layout, move_json, move_words, step
from stack.images import combining, envelope, policy, reference
from stack.images import publish as publishing
from stack.images.reference import Reference

_BOMS = ("*.cdx.json", "*.spdx.json")


@click.command("publish")
@click.argument("name", metavar="HOST/NAME:TAG")
@click.option("--gate", required=True, help="What it has to have passed, by its name among the gates.")
@click.option(
    "--verdict", "verdicts", type=file_path, multiple=True, required=True, help="Of a validation inside it; repeatable."
)
@click.option("--key", type=file_path, required=True, help="Who signs: a private key (PEM; ECDSA P-256 or Ed25519).")
@click.option(
    "--signers",
    type=file_path,
    help="Whose verdicts count (OpenSSH's allowed_signers); a file outside of the checkout. Default: allowed_signers in the user's "
    "configuration folder of stack.",
)
@click.option(
    "--gates",
    "gates_file",
    type=file_path,
    help="The gates; a file outside of the checkout. Default: gates.toml, beside those.",
)
@click.option(
    "--protected",
    metavar="REMOTE/BRANCH",
    help="Take signers and gates from this branch as it was fetched: what a pull request changes does not count.",
)
@click.option(
    "--image",
    "sources",
    metavar="oci:DIR",
    multiple=True,
    help=f"Which image; those of several platforms become one index. Default: the only one in the stack's {IMAGES}.",
)
@click.option(
    "--sbom", "boms", type=file_path, multiple=True, help="CycloneDX or SPDX, in JSON. Default: those beside the image."
)
@click.option("--move", "moves", metavar="TAG", multiple=True, help="Point this moving tag at it, too; repeatable.")
@insecure_option
@source_option
@json_option
@click.pass_context
def command(
    context: click.Context,
    name: str,
    gate: str,
    verdicts: tuple[Path, ...],
    key: Path,
    signers: Path | None,
    gates_file: Path | None,
    protected: str | None,
    sources: tuple[str, ...],
    boms: tuple[Path, ...],
    moves: tuple[str, ...],
    tls: bool,
    source: str,
    as_json: bool,
) -> None:
    """Publish an image that has passed GATE: by verdicts of this very image and stack, signed by those who may.

    It is pushed by its digest, gets its provenance, a summary of the verification, bills of materials and the verdicts, all
    signed; everything is read back and verified, and the tag comes last. A tag never changes. Credentials are those of `skopeo
    login`. Exit code 1 when the image may not be published.
    """

    options: Options = context.obj
    stack = options.load()
    images = [layout(one, stack.root) for one in sources or (None,)]
    beside = {file for image in images for pattern in _BOMS for file in Path(image.place).glob(pattern)}
    try:
        with _one(images) as image, policy.trusted(stack.root, gates_file, signers, protected) as trusted:
            with options.place(source) as place, Stores(stack, place) as stores:
                effects.check(stores)
            asked = publishing.Asked(
                reference.parse(name), image, gate, verdicts, trusted, boms or tuple(sorted(beside)), moves, tls
            )
            done = publishing.publish(asked, stack, envelope.signer(key), step)
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
    click.echo(f"{asked.name.shown} {'is published' if done.new else 'was published before'}")
    click.echo(f"digest {done.digest}")
    for move in done.moves:
        click.echo(move_words(move))


@contextmanager
def _one(images: Sequence[Reference]) -> Iterator[Reference]:
    """The image, or an index of several, as long as the block runs."""

    if len(images) == 1:
        yield images[0]
        return
    # Beside the first, so that files can be linked.
    with tempfile.TemporaryDirectory(prefix=".index-", dir=Path(images[0].place).absolute().parent) as folder:
        yield combining.combine(images, Path(folder) / "image")
