# SPDX-License-Identifier: Apache-2.0
"""`stack image load`: load an image of a layout into Docker or podman."""

from pathlib import Path

import click

from stack.cli.common import Options, json_option, print_json
from stack.cli.imaging.common import IMAGES, as_platform, layout, step
from stack.images import loading


@click.command("load")
@click.option("--image", "source", metavar="oci:DIR", help=f"The image. Default: the only one in the stack's {IMAGES}.")
@click.option(
    "--to",
    metavar="PLACE",
    help="docker, podman, docker-archive:FILE or oci:DIR. Default: docker, or podman where there is no docker.",
)
@click.option(
    "--name", metavar="NAME:TAG", help=f"Its name there. Default: {loading.REPOSITORY}:VERSION, with the version of its label."
)
@click.option(
    "--platform",
    metavar="OS/ARCH",
    callback=as_platform,
    help="Which image of an index, such as linux/arm64 or aarch64. Default: this machine's.",
)
@json_option
@click.pass_obj
def command(
    options: Options, source: str | None, to: str | None, name: str | None, platform: str | None, as_json: bool
) -> None:
    """Load an image into Docker or podman, or write it as an archive or another layout.

    Each layer is compared with its digest, and the layers of the loaded image with those of the layout. The archive is what
    `docker load -i FILE` and `podman load -i FILE` read on another machine. The name is the STACK_IMAGE of the compose files,
    and the --image of `spark-stack up`.
    """
    found = layout(source, Path() if source is not None else options.find_root())
    chosen = loading.chosen(found, platform)
    loaded = loading.load(found, chosen, name or loading.default_name(chosen), to, step)
    if as_json:
        print_json({"name": loaded.name, "digest": loaded.digest, "platform": loaded.platform, "to": loaded.to})
        return
    click.echo(f"{loaded.name} ({loaded.platform}) is in {loaded.to}")
    click.echo(f"digest {loaded.digest}")
    if loaded.to in loading.PROGRAMS:
        recipe = chosen.labels.get("stack.recipe") or "RECIPE"
        engine = "" if loaded.to == "docker" else f" --engine {loaded.to}"
        click.echo(f"to serve: spark-stack up {recipe} --image {loaded.name}{engine}")
        click.echo(f"or: STACK_IMAGE={loaded.name} {loaded.to} compose -f docker/compose.yml up")
