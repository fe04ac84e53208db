# SPDX-License-Identifier: Apache-2.0
"""`stack image run`: run a command in an image, which may be for another processor."""

from pathlib import Path

import click

from stack.cli.common import Options
from stack.cli.imaging.common import IMAGES, as_platform, layout
from stack.images import engine as engines
from stack.images import loading, trying


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option("--image", "source", metavar="oci:DIR", help=f"The image. Default: the only one in the stack's {IMAGES}.")
@click.option(
    "--platform",
    metavar="OS/ARCH",
    callback=as_platform,
    help="Which image of an index, such as linux/arm64 or aarch64. Default: this machine's.",
)
@click.option("--engine", type=click.Choice(engines.ENGINES), help="Engine that stores it. Default: the first that works.")
@click.option(
    "--lend",
    "lent",
    metavar="PATH[:INSIDE]",
    multiple=True,
    help="A folder of this machine to be seen inside; may be repeated.",
)
@click.argument("words", nargs=-1, metavar="[COMMAND]...", type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    source: str | None,
    platform: str | None,
    engine: str | None,
    lent: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    """Run COMMAND in an image (default: its entry point and server), under qemu if it is for another processor.

    Use it to try an image before it goes to the machine that it is for. It runs as an unprivileged user of this machine and shares
    its network: run only images that you trust. Needs root, and proot; there are no GPUs. The exit code is the command's.
    """
    options: Options = context.obj
    found = layout(source, Path() if source is not None else options.find_root())
    chosen = loading.chosen(found, platform)
    with options.place() as place:
        code = trying.run(engines.found(engine), found, chosen, words, lent, place.cache, place.progress)
    context.exit(code)
