# SPDX-License-Identifier: Apache-2.0
"""`stack log`: show what each switch of the stack did."""

import datetime
from collections.abc import Iterator

import click

from stack.base.text import counted
from stack.carry import switch_log
from stack.carry.switch_log import PinMove, Switched
from stack.cli.common import Options, json_option, print_json
from stack.cli.rendering import called, settings, terminal, text
from stack.cli.sentences import say

_NAMED = 3


@click.command("log")
@click.option("--all", "whole", is_flag=True, help="Name every patch and file, not only how many; -v does the same.")
@json_option
@click.pass_obj
def command(options: Options, whole: bool, as_json: bool) -> None:
    """Show what each rebase, import, refresh or `pins set` changed, newest first. Needs no network.

    These are the changes that `stack undo` can take back and `stack redo` can repeat, the last twenty of each. The history
    belongs to this folder; your own git has the rest.
    """

    switches = switch_log.log(options.find_root())
    if as_json:
        print_json({"switches": [switch_json(each) for each in switches]})
    elif not switches:
        say("nothing is recorded: no command has changed this stack in this folder")
    for each in () if as_json else switches:
        when = f"{moment(each.time)}  " if each.time is not None else ""
        text.echo(f"{when}{text.styled(text.one_line(each.title), 'bold')}")
        if each.undone:
            text.echo(text.styled(called.renamed("  undone: `stack redo` repeats it"), "yellow"))
        for sentence in sentences(each, most=None if whole or settings.current().verbose else _NAMED):
            for line in text.filled(text.one_line(sentence), "    ", "  "):
                text.echo(line)


def sentences(switch: Switched, *, most: int | None = _NAMED) -> Iterator[str]:
    """Yield what a switch did, in a few sentences; `most`: how many patches of a kind to name, None for all."""
    if switch.pins:
        yield ", ".join(move_words(move) for move in switch.pins)
    landed = [f"{_plain(each.patch)} (in {each.release})" for each in switch.landed]
    for names, verb in (
        ([_plain(path) for path in switch.added], "added"),
        (landed, "landed and left"),
        ([_plain(path) for path in switch.removed], "removed"),
        ([_plain(path) for path in switch.rewritten], "rewritten"),
    ):
        if names:
            shown = names if most is None or len(names) <= most else []
            yield f"{counted(len(names), 'patch')} {verb}{': ' if shown else ''}{', '.join(shown)}"
    if switch.resolutions:
        yield f"{counted(switch.resolutions, 'resolution')} changed"
    if switch.other and most is None:
        yield f"also: {', '.join(switch.other)}"
    elif switch.other and not (switch.pins or switch.added or landed or switch.removed or switch.rewritten):
        yield f"{counted(len(switch.other), 'file')} changed"


def move_words(move: PinMove) -> str:
    """Describe how a pin moved, and in which lane."""
    return f"{_move_words(move)}{f' (lane {move.lane})' if move.lane is not None else ''}"


def _move_words(move: PinMove) -> str:
    if move.old is None:
        return f"{move.upstream} pinned at {move.new}"
    return f"{move.upstream} no longer pinned" if move.new is None else f"{move.upstream} {move.old} {arrow()} {move.new}"


def arrow() -> str:
    """Return an arrow that the terminal can show."""
    return "→" if terminal.has_unicode() and terminal.is_terminal() else "->"


def moment(time: int) -> str:
    """Return a time as people write it, in the local time zone."""
    return datetime.datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M")


def _plain(path: str) -> str:
    return path.removesuffix(".patch")


def switch_json(switch: Switched) -> dict[str, object]:
    """Return what a switch did as JSON."""
    return {
        "number": switch.number,
        "title": switch.title,
        "time": switch.time,
        "undone": switch.undone,
        "pins": [{"upstream": move.upstream, "from": move.old, "to": move.new, "lane": move.lane} for move in switch.pins],
        "added": list(switch.added),
        "removed": list(switch.removed),
        "landed": [{"patch": landing.patch, "release": landing.release} for landing in switch.landed],
        "rewritten": list(switch.rewritten),
        "resolutions": switch.resolutions,
        "other": list(switch.other),
    }
