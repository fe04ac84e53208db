# SPDX-License-Identifier: Apache-2.0
"""`stack image build`: build an image of the stack, and install the packages without network."""

from pathlib import Path

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, packages_from, packages_option, print_json, source_option
from stack.cli.completing import complete_recipes, complete_upstreams
from stack.cli.imaging.common import as_platform
from stack.cli.lane_options import lane_option
from stack.cli.sentences import say
from stack.deploy import recipes
from stack.images import ahead as modules_ahead
from stack.images import base as bases
from stack.images import build
from stack.images import engine as engines


def _layout(_context: click.Context, _option: click.Parameter, given: str | None) -> Path | None:
    """Return the folder of a value `oci:DIR` of `--output`."""
    if given is None:
        return None
    kind, _, folder = given.partition(":")
    if kind != "oci" or not folder:
        raise StackError(f"--output {given!r:.200} is not a layout", "write oci:DIR")
    return Path(folder)


@click.command("build")
@click.argument("upstreams", nargs=-1, metavar="[UPSTREAM]...", shell_complete=complete_upstreams)
@click.option("--engine", type=click.Choice(engines.ENGINES), help="Engine to build with. Default: the first that works.")
@click.option(
    "--platform",
    metavar="OS/ARCH",
    callback=as_platform,
    help="Platform of the image, such as linux/arm64, which arm64 and aarch64 mean, too. Default: this machine's.",
)
@click.option(
    "--base", metavar="IMAGE@DIGEST", help="Base image instead of that of pins.toml; oci:DIR@sha256:… for one in a layout."
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
    "--recipe",
    metavar="NAME",
    help="Recipe that the image shall serve: kernels are compiled for its GPU, and CUDA's compiler is added if the base lacks it.",
    shell_complete=complete_recipes,
)
@click.option(
    "--aot",
    "ahead",
    multiple=True,
    metavar="MODULE",
    help="Compile this module of FlashInfer's JIT into the image, for SM121 (* matches any text); may be repeated; none: no module. "
    f"Default for a recipe of a DGX Spark: {' and '.join(modules_ahead.DEFAULT)}.",
)
@click.option(
    "--requirements",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="An earlier image's requirements.txt: install the same packages next to the stack's wheels.",
)
@click.option(
    "--output",
    metavar="oci:DIR",
    callback=_layout,
    help="Write the OCI layout there. Default: .stack/images/NAME in the stack.",
)
@json_option
@source_option
@lane_option
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
    recipe: str | None,
    ahead: tuple[str, ...],
    as_json: bool,
    source: str | None,
) -> None:
    """Build an image with the wheels of UPSTREAM (default: all with patches) on the base image.

    The base is fetched by its digest, and missing system packages are installed. Wheels and requirements are downloaded with
    hashes; the step that installs them has no network. Equal wheels, requirements and base give an equal digest. The layout
    also contains bills of materials and the requirements. For another processor than this machine's, nothing of the image runs
    here, and the base has to have all system packages.
    """

    stack = options.load()
    chosen_recipe = recipes.load(recipe, stack.root) if recipe is not None else None
    named = bases.given(base) if base is not None else None
    with options.place(source) as place, Stores(stack, place) as stores:
        order = build.BuildOrder(
            engines.found(engine),
            named or bases.pinned(stack.pins.base, place.cache),
            upstreams,
            packages_from(packages, upstreams),
            platform,
            target,
            requirements,
            output,
            chosen_recipe,
            ahead,
        )
        image = build.build(stores, order, stores.tell)
    if as_json:
        print_json(
            {
                "image": f"oci:{image.folder}",
                "digest": image.digest,
                "id": image.id,
                "stack": image.stack,
                "lane": options.lane_key,
                "platform": image.platform,
                "base": {"name": order.base.name, "digest": order.base.digest},
                "wheels": list(image.wheels),
                "packages": image.packages,
                "compiled": list(image.compiled),
                "left_to_jit": list(image.left),
                "engine": order.engine.name,
            }
        )
        return
    click.echo(f"oci:{image.folder} ({image.platform})")
    click.echo(f"digest {image.digest}")
    click.echo(f"stack  {image.stack}")
    click.echo(f"{image.packages} Python packages, {len(image.wheels)} of them built here: {', '.join(image.wheels)}")
    if image.compiled:
        say(
            f"compiled ahead of time: {', '.join(image.compiled)}; {counted(len(image.left), 'module')} of FlashInfer "
            "left to the JIT: python.cdx.json lists them"
        )
    click.echo(f"in {order.engine.name}'s storage as {image.id[:12]}; in the layout also: bills of materials, requirements.txt")
