# SPDX-License-Identifier: Apache-2.0
"""`stack resolutions`: list, show and drop stored conflict resolutions."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from stack.carry import resolutions
from stack.carry.resolutions import Resolution, shown
from stack.cli.common import Options, json_option, print_json, print_table


@click.group("resolutions")
def command() -> None:
    """List, show or drop stored conflict resolutions.

    A conflict that a person resolved is kept in stacks/resolutions and reused by the next carry. A KEY may be cut short to
    four digits or more, as long as it fits one resolution.
    """


@command.command("list")
@json_option
@click.pass_obj
def list_(options: Options, as_json: bool) -> None:
    """List all, with the patch and the release on which each was made."""

    known = resolutions.standing(options.find_root())
    if as_json:
        print_json({"resolutions": [_as_json(name, one) for name, one in known.named.items()]})
    elif known.named:
        rows = [(name, one.path, one.patch, one.rung, f"+{one.lines}") for name, one in known.named.items()]
        print_table(("key", "path", "patch", "rung", "lines"), rows)
    else:
        click.echo("no resolutions")


@command.command()
@click.argument("key")
@json_option
@click.pass_obj
def show(options: Options, key: str, as_json: bool) -> None:
    """Show the conflict of KEY with the lines around it, and what replaces it."""

    known = resolutions.standing(options.find_root())
    name = known.find(key)
    one = known.named[name]
    if as_json:
        texts = ("before", "base", "ours", "theirs", "after", "resolved")
        shown = {text: getattr(one, text) for text in texts}
        print_json(_as_json(name, one) | shown | {"beside": [asdict(change) for change in one.beside]})
        return
    for line, style in _drawn(one):
        # As everywhere, colours are for a terminal only, and for who wants them.
        click.secho(line, color=False if os.environ.get("NO_COLOR") else None, **style)


@command.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@json_option
@click.pass_obj
def drop(options: Options, keys: tuple[str, ...], as_json: bool) -> None:
    """Take resolutions away: their conflicts are conflicts again. `stack undo` brings them back."""

    names = resolutions.drop(options.find_root(writes=True), keys)
    if as_json:
        print_json({"dropped": list(names)})
    else:
        click.echo(f"dropped: {', '.join(names)}; `stack undo` takes it back")


def _as_json(name: str, one: Resolution) -> dict[str, object]:
    fields = ("upstream", "patch", "path", "rung", "lines")
    return {"key": name, **{field: getattr(one, field) for field in fields}}


def _drawn(one: Resolution) -> Iterator[tuple[str, dict[str, Any]]]:
    """The lines of `show`, each with its style: head, conflict as git writes one into a file, what replaces it."""
    for name in ("upstream", "patch", "path", "rung"):
        yield f"{name:10}{getattr(one, name)}", {"dim": True}
    yield "", {}
    yield from _styled(one.before)
    yield f"<<<<<<< ours: {one.upstream} {one.rung}", {"bold": True}
    yield from _styled(one.ours, fg="cyan")
    yield "||||||| base", {"bold": True}
    yield from _styled(one.base, dim=True)
    yield "=======", {"bold": True}
    yield from _styled(one.theirs, fg="yellow")
    yield f">>>>>>> theirs: {one.patch}", {"bold": True}
    yield from _styled(one.after)
    yield "", {}
    yield f"replaced by {one.lines} line(s)", {"bold": True}
    yield from _styled(one.resolved, fg="green")
    for change in one.beside:
        yield "", {}
        yield f"and in {change.path}", {"bold": True}
        yield from _styled(change.before)
        yield from (("-" + line, style) for line, style in _styled(change.old, fg="red"))
        yield from (("+" + line, style) for line, style in _styled(change.new, fg="green"))
        yield from _styled(change.after)


def _styled(text: str, **style: Any) -> Iterator[tuple[str, dict[str, Any]]]:

    return ((line, style) for line in shown(text))
