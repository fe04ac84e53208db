# SPDX-License-Identifier: Apache-2.0
"""`stack status`: show what waits for a person, what can be dropped, what changed, and what is carried."""

import time
from collections.abc import Mapping, Sequence

import click

from stack.base.text import counted
from stack.carry.overview import Item, Overview, overview
from stack.cli import log
from stack.cli.common import Options, json_option, print_table
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering import called, settings, text
from stack.model import digest, lanes
from stack.model.diff import counts
from stack.model.patch import files
from stack.model.series import PatchRef, Series
from stack.model.stack import Stack
from stack.store import cache

_DETAILS = 5
"""Upper bound of the lines below a sentence; `--all` shows the rest."""


@click.command("status")
@click.option("--all", "whole", is_flag=True, help="Also list every patch, the digest, and everything that is only counted.")
@lane_option
@all_lanes_option
@json_option
@click.pass_context
def command(context: click.Context, whole: bool, all_lanes: bool, as_json: bool) -> None:
    """Show what waits for a person, what can be dropped, what changed since the last release, and what is carried.

    Needs no network. What a release would do to the patches is known after `stack rebase --dry-run` or `stack forecast`, until
    the stack changes.
    """

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        stack = options.load()
        known = overview(stack, cache.root(options.cache))
        if not as_json:
            _print(stack, known, whole=whole)
        return 0, _as_json(stack, known) if as_json else {}

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))


def _print(stack: Stack, known: Overview, *, whole: bool) -> None:
    whole = whole or settings.current().verbose
    text.echo(text.styled(_summary(stack), "bold"))
    _print_items("Waits for a person", known.waiting, whole=whole)
    _print_items("Can be dropped", known.droppable, whole=whole)
    _print_since(known, stack.lane, whole=whole)
    text.echo()
    print_table(
        ("pin", "tag", "commit"),
        [(pin.upstream, pin.tag or ("vendored" if pin.within else ""), pin.commit[:12]) for pin in stack.pins],
    )
    text.echo()
    rows: list[tuple[str, str, str, str]] = []
    for series in stack.series:
        rows.append((series.name, series.state, _size(stack, series), series.title))
        if whole:
            sizes = [(ref, counts(files(stack.patches[ref]))) for ref in series.patches]
            rows += [("", ref.upstream, "+{} -{}".format(*size), _subject(stack, ref)) for ref, size in sizes]
    print_table(("series", "state", "lines", "title"), rows)
    if whole:
        text.echo(f"\nstack {digest.of(stack)}")
    if stack.lane is None and stack.pins.lanes:
        _print_filled(f"lanes: {', '.join(stack.pins.lanes)} (`stack lane list`, --lane NAME, --all-lanes)", "\n")


def _subject(stack: Stack, ref: PatchRef) -> str:
    return f"{stack.patches[ref].subject}{' (own version of the lane)' if stack.owns(ref.path) else ''}"


def _summary(stack: Stack) -> str:
    used = [pin for pin in stack.pins if stack.order(pin.upstream)]
    on = ", ".join(f"{pin.upstream} {pin.shown}" for pin in used if pin.within is None)
    own = sum(stack.owns(ref.path) for ref in stack.patches)
    lane = f", lane {stack.lane} ({own} of its own)" if stack.lane is not None else ""
    patches, series = counted(len(stack.patches), "patch"), f"{len(stack.series)} series"
    guards = f", {counted(len(stack.guards), 'guard')}" if stack.guards else ""
    return f"{patches} in {series}{f' on {on}' if on else ''}{lane}{guards}"


def _size(stack: Stack, series: Series) -> str:
    added, removed = counts([file for ref in series.patches for file in files(stack.patches[ref])])
    if series.patches:
        return f"+{added} -{removed}"
    needed = lanes.carriers(stack, series.name)
    return f"no patch (lane {', '.join(needed)} has)" if needed else "no patch"


def _print_items(title: str, items: Sequence[Item], *, whole: bool) -> None:
    if not items:
        return
    text.heading(title)
    for item in items:
        _print_filled(item.text, "  - ")
        shown = item.details if whole else item.details[:_DETAILS]
        for detail in shown:
            _print_filled(detail, "      ", "        ")
        if len(item.details) > len(shown):
            text.echo(f"      and {len(item.details) - len(shown)} more: --all")
        if item.command:
            text.echo(f"      {text.styled(called.renamed(item.command), 'cyan')}")


def _print_filled(sentence: str, first: str, rest: str = "    ") -> None:
    for line in text.filled(text.one_line(called.renamed(sentence)), rest, first):
        text.echo(line)


def _print_since(known: Overview, lane: str | None, *, whole: bool) -> None:
    if known.moved is None:
        if known.since:
            text.heading("Done in this folder")
    else:
        moves = ", ".join(log.move_words(move) for move in known.moved.pins if move.lane == lane)
        text.heading(f"Since {text.one_line(moves)}{_ago(known.moved.time)}")
        if not known.since:
            _print_filled("no command has changed the stack: `stack log`", "  ")
    for switch in known.since if whole else known.since[:_DETAILS]:
        what = "; ".join(log.sentences(switch, most=1))
        _print_filled(f"{switch.title}{f': {what}' if what else ''}", "  - ")
    if not whole and len(known.since) > _DETAILS:
        _print_filled(f"and {len(known.since) - _DETAILS} more: `stack log`", "  ")


def _ago(moment: int | None) -> str:
    """Return how long ago a moment was, in parentheses."""
    if moment is None:
        return ""
    seconds = max(int(time.time()) - moment, 0)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return f" ({counted(seconds // length, unit)} ago)"
    return " (just now)"


def _as_json(stack: Stack, known: Overview) -> dict[str, object]:
    sizes = {ref: counts(files(patch)) for ref, patch in stack.patches.items()}
    return {
        "digest": digest.of(stack),
        "pins": [{"upstream": pin.upstream, "tag": pin.tag, "commit": pin.commit} for pin in stack.pins],
        "lanes": list(stack.pins.lanes),
        "series": [
            {
                "name": series.name,
                "title": series.title,
                "state": series.state,
                "pull": series.pull,
                "needs": list(series.needs),
                "patches": [
                    {
                        "upstream": ref.upstream,
                        "file": ref.file,
                        "subject": stack.patches[ref].subject,
                        "added": sizes[ref][0],
                        "removed": sizes[ref][1],
                        "pulls": [pulled.address for pulled in series.pulls if pulled.ref == ref],
                        "own": stack.owns(ref.path),
                    }
                    for ref in series.patches
                ],
            }
            for series in stack.series
        ],
        "waiting": [_item_json(item) for item in known.waiting],
        "droppable": [_item_json(item) for item in known.droppable],
        "moved": log.switch_json(known.moved) if known.moved is not None else None,
        "since": [log.switch_json(switch) for switch in known.since],
        "tried": [
            {
                "upstream": each.upstream,
                "onto": each.onto,
                "time": each.time,
                "outcomes": [
                    {"patch": patch.patch, "outcome": patch.outcome, "reason": patch.reason, "needs_person": patch.needs_person}
                    for patch in each.patches
                ],
            }
            for each in known.tried
        ],
    }


def _item_json(item: Item) -> dict[str, object]:
    return {"text": item.text, "details": list(item.details), "command": item.command}
