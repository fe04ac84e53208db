# SPDX-License-Identifier: Apache-2.0
"""`stack image build`: an image of the stack, without network in the step that installs."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, packages_from, packages_option, print_json, source_option
from stack.images import base as bases
from stack.images import build
from stack.images import engine as engines


def _layout(_context: click.Context, _option: click.Parameter, given: str | None) -> Path | None:
    """The folder that `--output oci:DIR` names."""
    if given is None:
        return None
    kind, _, folder = given.partition(":")
    if kind != "oci" or not folder:
        raise StackError(f"--output {given!r:.200} is no layout", "write oci:DIR")
    return Path(folder)


@click.command("build")
@click.argument("upstreams", nargs=-1, metavar="[UPSTREAM]...")
@click.option("--engine", type=click.Choice(engines.ENGINES), help="What builds it. Default: the first that works.")
@click.option("--platform", metavar="OS/ARCH", help="Such as linux/arm64. Default: this machine's.")
@click.option(
    "--base", metavar="IMAGE@DIGEST", help="Another base image than that of pins.toml; oci:DIR@sha256:… for one in a layout."
)
@packages_option
@click.option(
    "--target",
    type=click.Choice(["serve", "development"]),
    default="serve",
    show_default=True,
    help="development: for docker/compose.dev.yml, which mounts the sources.",
)
@click.option(
    "--requirements",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="An earlier image's requirements.txt, to install the same beside the stack's own wheels.",
)
@click.option(
    "--output", metavar="oci:DIR", callback=_layout, help="Where the OCI layout goes. Default: .stack/images/NAME in the stack."
)
@json_option
@source_option
@click.pass_obj
def command(
    options: Options,
    upstreams: tuple[str, ...],
    engine: str | None,
    platform: str | None,
    base: str | None,
    packages: tuple[str, ...],
    target: str,
    requirements: Path | None,
    output: Path | None,
    as_json: bool,
    source: str,
) -> None:
    """Build an image of the wheels of UPSTREAM (all that have patches, unless named) on the base image.

    The base is fetched by its digest, what its system lacks is installed there, and wheels and what they need are brought
    together by their hashes; the step that installs them has no network. The same wheels, requirements and base make the same
    digest. Beside the image in its layout lie bills of materials and the requirements.
    """

    stack = options.load()
    chosen = bases.given(base) if base is not None else bases.pinned(stack.pins.base)
    found = engines.found(engine)
    order = build.Order(found, chosen, upstreams, packages_from(packages, upstreams), platform, target, requirements, output)
    with options.place(source) as place, Stores(stack, place) as stores:
        image = build.build(stores, order, stores.tell)
    if as_json:
        print_json(
            {
                "image": f"oci:{image.folder}",
                "digest": image.digest,
                "id": image.id,
                "stack": image.stack,
                "platform": image.platform,
                "base": {"name": chosen.name, "digest": chosen.digest},
                "wheels": list(image.wheels),
                "packages": image.packages,
                "engine": found.name,
            }
        )
        return
    click.echo(f"oci:{image.folder} ({image.platform})")
    click.echo(f"digest {image.digest}")
    click.echo(f"stack  {image.stack}")
    click.echo(f"{image.packages} Python packages, {len(image.wheels)} of them built here: {', '.join(image.wheels)}")
    click.echo(f"in {found.name}'s storage as {image.id[:12]}; beside it in the layout: bills of materials, requirements.txt")
