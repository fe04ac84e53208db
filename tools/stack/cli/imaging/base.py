# SPDX-License-Identifier: Apache-2.0
"""`stack image base`: make the base image of Debian packages, for any processor."""

import click

from stack.carry import rebase
from stack.cli.common import Options, json_option, print_json
from stack.cli.sentences import say
from stack.images import build, own_base, processors
from stack.model.pins import Base

_SUITE = "bookworm"


@click.command("base")
@click.option(
    "--platform",
    "platforms",
    metavar="OS/ARCH",
    multiple=True,
    callback=lambda _context, _option, named: tuple(map(processors.platform_of, named)),
    help=f"A platform that it is for; may be repeated. Default: {' and '.join(own_base.PLATFORMS)}.",
)
@click.option("--suite", metavar="NAME", help=f"Debian's release. Default: that of the pinned base, else {_SUITE}.")
@click.option(
    "--mirror",
    "mirrors",
    metavar="LINE",
    multiple=True,
    help="A mirror's address or a line of apt's sources, such as one of a snapshot; may be repeated. Default: Debian's own.",
)
@click.option("--pin", is_flag=True, help="Write it into pins.toml as the base image.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    platforms: tuple[str, ...],
    suite: str | None,
    mirrors: tuple[str, ...],
    pin: bool,
    as_json: bool,
) -> None:
    """Make a base image of Debian packages: the essential ones and those of docker/system/packages.txt.

    Use it where no image registry can be reached, or for another processor than this machine's. mmdebstrap downloads the packages
    and verifies their signatures; those for another processor are set up under qemu. Their own scripts run as root; where the kernel
    allows namespaces, they reach neither the network nor this machine's files, devices and processes. The same packages give the same
    digest. Needs root. The exit code is 1 if pins.toml names such a base with another digest: the packages are other ones by now.
    """
    options: Options = context.obj
    stack = options.load(writes=pin)
    pinned = stack.pins.base
    chosen = suite or own_base.suite(pinned) or _SUITE
    order = own_base.BaseOrder(chosen, build.system_packages(stack.root), platforms or own_base.PLATFORMS, mirrors)
    with options.place() as place:
        own = own_base.make(order, place.cache, place.progress)
    made = own.pin
    if pin:
        _pin(options, made)
    same = None if pinned is None or own_base.suite(pinned) is None else pinned.digest == made.digest
    if as_json:
        print_json(
            {
                "base": {"image": made.image, "tag": made.tag, "digest": made.digest},
                "pinned": pin,
                "as_pinned": same,
                "confined": own.confined,
            }
        )
    else:
        click.echo(f"{made.image}:{made.tag}")
        click.echo(f"digest {made.digest}")
        say(_sentence(pin, same))
        if not own.confined:
            say(
                "The packages' scripts ran as root without walls: this machine allows no namespaces (`unshare --mount --pid --net true`)."
            )
    context.exit(1 if same is False and not pin else 0)


def _pin(options: Options, made: Base) -> None:
    stack = options.load(writes=True)
    rebase.set_pins(stack, stack.pins.based(made), (), title=f"pins set base {made.image}:{made.tag}", allow_mismatch=False)


def _sentence(pin: bool, same: bool | None) -> str:
    if pin:
        return "pins.toml, which git tracks, names it now: stack image build takes it; `stack undo` takes it back"
    if same is None:
        return "pins.toml does not name it: --pin writes it there"
    if same:
        return "it is the base image that pins.toml names: stack image build takes it"
    return "pins.toml names another one: the packages have changed since. Name a mirror of that day, or take the new ones with --pin"
