# SPDX-License-Identifier: Apache-2.0
"""`stack lane`: begin, list and drop lanes."""

import click

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.sentences import say


@click.group("lane")
def command() -> None:
    """Hold the same series on several releases: begin, list or drop lanes.

    A lane is a second set of pins, with its own versions of the patches that need one. It uses the common file of every other patch.
    """


@command.command("list")
@json_option
@click.pass_obj
def list_(options: Options, as_json: bool) -> None:
    """Show where each lane stands, and how many patches it has of its own."""
    from stack.model import lanes  # noqa: PLC0415

    stacks = lanes.carried(options.find_root())
    rows = [
        {
            "lane": lane,
            "pins": [{"upstream": pin.upstream, "tag": pin.tag, "commit": pin.commit} for pin in stack.pins],
            "patches": len(stack.patches),
            "own": [ref.path for ref in stack.patches if stack.owns(ref.path)],
        }
        for lane, stack in stacks.items()
    ]
    if as_json:
        print_json({"lanes": rows})
        return
    shown = [
        (
            lanes.named(lane),
            ", ".join(f"{pin.upstream} {pin.shown}" for pin in stack.pins if pin.within is None),
            str(row["patches"]),
            str(len([ref for ref in stack.patches if stack.owns(ref.path)])),
        )
        for (lane, stack), row in zip(stacks.items(), rows, strict=True)
    ]
    print_table(("lane", "stands on", "patches", "its own"), shown)


@command.command()
@click.argument("name")
@click.option(
    "--from", "source", metavar="LANE", help="Begin with the pins and patches of this lane. Default: those in no lane."
)
@json_option
@click.pass_obj
def add(options: Options, name: str, source: str | None, as_json: bool) -> None:
    """Begin the lane NAME where the stack stands now.

    It changes no patch. Then move either side: `stack rebase UPSTREAM --onto REV` moves the stack on and leaves the lane where it is,
    `stack rebase UPSTREAM --onto REV --lane NAME` moves the lane. `stack undo` takes it back.
    """
    from stack.model import lanes  # noqa: PLC0415

    root = options.find_root(writes=True)
    lanes.begin(root, name, lanes.key(source))
    if as_json:
        print_json({"lane": name, "from": lanes.key(source), "lanes": _names(options)})
    else:
        say(
            f"lane {name} begins where {f'lane {source}' if lanes.key(source) else 'the stack'} stands; `stack undo` takes it back"
        )
        say(f"next, to move the stack on and leave lane {name} where it is:", "stack rebase UPSTREAM --onto REV")
        say("or, to move the lane:", f"stack rebase UPSTREAM --onto REV --lane {name}")


@command.command()
@click.argument("name")
@json_option
@click.pass_obj
def drop(options: Options, name: str, as_json: bool) -> None:
    """Remove the lane NAME: its pins, and the files that only it has. `stack undo` takes it back."""
    from stack.model import lanes  # noqa: PLC0415

    written = lanes.drop(options.find_root(writes=True), name)
    if as_json:
        print_json({"lane": name, "removed": [path for path in written if path != "pins.toml"], "lanes": _names(options)})
    else:
        say(f"dropped lane {name} with {counted(len(written) - 1, 'file')} of its own; `stack undo` takes it back")


def _names(options: Options) -> list[str]:
    from stack.model import lanes  # noqa: PLC0415

    return [lane for lane in lanes.of_every(options.find_root()) if lane is not None]
