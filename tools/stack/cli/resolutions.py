# SPDX-License-Identifier: Apache-2.0
"""`stack resolutions`: list, show and drop stored conflict resolutions."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from stack.base.text import counted
from stack.carry import resolutions
from stack.carry.resolutions import Resolution, shown
from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.sentences import say


@click.group("resolutions")
def command() -> None:
    """List, show or drop stored conflict resolutions.

    A conflict that a person resolved is kept in stacks/resolutions and reused by the next carry. A KEY may be abbreviated to four
    digits or more if only one resolution matches.
    """


@command.command("list", short_help="List all resolutions.")
@json_option
@click.pass_obj
def list_(options: Options, as_json: bool) -> None:
    """List all resolutions with the patch and the release for which each was made."""

    known = resolutions.standing(options.find_root())
    if as_json:
        print_json({"resolutions": [_as_json(name, resolution) for name, resolution in known.named.items()]})
    elif known.named:
        rows = [
            (name, resolution.path, resolution.patch, resolution.rung, f"+{resolution.lines}")
            for name, resolution in known.named.items()
        ]
        print_table(("key", "path", "patch", "rung", "lines"), rows)
    else:
        click.echo("no resolutions")


@command.command(short_help="Show a conflict and its resolution.")
@click.argument("key")
@json_option
@click.pass_obj
def show(options: Options, key: str, as_json: bool) -> None:
    """Show the conflict of KEY with the lines around it, and its replacement."""

    known = resolutions.standing(options.find_root())
    name = known.find(key)
    resolution = known.named[name]
    if as_json:
        texts = ("before", "base", "ours", "theirs", "after", "resolved")
        shown = {text: getattr(resolution, text) for text in texts}
        print_json(_as_json(name, resolution) | shown | {"beside": [asdict(change) for change in resolution.beside]})
        return
    for line, style in _drawn(resolution):
        # Colours only on a terminal, and only without NO_COLOR.
        click.secho(line, color=False if os.environ.get("NO_COLOR") else None, **style)


@command.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@json_option
@click.pass_obj
def drop(options: Options, keys: tuple[str, ...], as_json: bool) -> None:
    """Drop resolutions, so that their conflicts appear again. `stack undo` brings them back."""

    names = resolutions.drop(options.find_root(writes=True), keys)
    if as_json:
        print_json({"dropped": list(names)})
    else:
        say(f"dropped: {', '.join(names)}; `stack undo` takes it back")


def _as_json(name: str, resolution: Resolution) -> dict[str, object]:
    fields = ("upstream", "patch", "path", "rung", "lines")
    return {"key": name, **{field: getattr(resolution, field) for field in fields}}


def _drawn(resolution: Resolution) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lines of `show` with their styles: header, conflict as git writes it into a file, replacement."""
    for name in ("upstream", "patch", "path", "rung"):
        yield f"{name:10}{getattr(resolution, name)}", {"dim": True}
    yield "", {}
    yield from _styled(resolution.before)
    yield f"<<<<<<< ours: {resolution.upstream} {resolution.rung}", {"bold": True}
    yield from _styled(resolution.ours, fg="cyan")
    yield "||||||| base", {"bold": True}
    yield from _styled(resolution.base, dim=True)
    yield "=======", {"bold": True}
    yield from _styled(resolution.theirs, fg="yellow")
    yield f">>>>>>> theirs: {resolution.patch}", {"bold": True}
    yield from _styled(resolution.after)
    yield "", {}
    yield f"replaced by {counted(resolution.lines, 'line')}", {"bold": True}
    yield from _styled(resolution.resolved, fg="green")
    for change in resolution.beside:
        yield "", {}
        yield f"and in {change.path}", {"bold": True}
        yield from _styled(change.before)
        yield from (("-" + line, style) for line, style in _styled(change.old, fg="red"))
        yield from (("+" + line, style) for line, style in _styled(change.new, fg="green"))
        yield from _styled(change.after)


def _styled(text: str, **style: Any) -> Iterator[tuple[str, dict[str, Any]]]:

    return ((line, style) for line in shown(text))
