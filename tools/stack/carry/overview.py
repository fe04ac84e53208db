# SPDX-License-Identifier: Apache-2.0
"""Summarize a stack for its maintainer: what waits for a person, what can be dropped, and what changed since the last release.

Only files of the stack, its history and the cache are read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.text import counted
from stack.carry import resolutions, switch_log, tried
from stack.carry.switch_log import Switched
from stack.carry.tried import Tried
from stack.model import lanes
from stack.model.series import Series, State
from stack.model.stack import Stack


@dataclass(frozen=True, slots=True)
class Item:
    """Something to look at: a sentence, further lines, and the command to run, if there is one."""

    text: str
    details: tuple[str, ...] = ()
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """A summary of a stack. `moved` is the last switch that moved a pin of its lane, `since` are the later ones, newest first."""

    waiting: tuple[Item, ...]
    droppable: tuple[Item, ...]
    moved: Switched | None
    since: tuple[Switched, ...]
    tried: tuple[Tried, ...]


def overview(stack: Stack, cache: Path) -> Overview:
    """Summarize a stack.

    Raises:
        StackError: The stack's history or a resolution cannot be read.

    """
    carried = tried.last(cache, stack)
    switches = switch_log.standing(stack.root, stack.lane)
    place = next((number for number, switch in enumerate(switches) if switch.moves_pins(stack.lane)), len(switches))
    return Overview(
        tuple(_waiting(stack, carried)),
        tuple(_droppable(stack, carried)),
        switches[place] if place < len(switches) else None,
        tuple(switches[:place]),
        carried,
    )


def _waiting(stack: Stack, carried: Sequence[Tried]) -> Iterator[Item]:
    for each in carried:
        if each.workspace is not None:
            yield Item(
                f"A rebase onto {each.upstream} {each.onto} has stopped in {each.workspace}.",
                command=f"stack explain {each.workspace}",
            )
        if each.open:
            details = tuple(f"{patch.patch.removesuffix('.patch')}: {patch.reason or patch.outcome}" for patch in each.open)
            name = details[0].partition(":")[0]
            yield Item(
                f"{counted(len(each.open), 'patch needs', 'patches need')} a person on {each.upstream} {each.onto}.",
                details,
                f"stack explain {name} --onto {each.onto}{lanes.option(stack)}",
            )
    by_state = [
        (State.DECLINED, "was declined upstream", "were declined upstream", None),
        (State.SUBMITTED, "waits for upstream's review", "wait for upstream's review", "stack export-pr --status"),
        (State.PENDING, "is not proposed upstream yet", "are not proposed upstream yet", "stack export-pr"),
        (State.DRAFT, "is a draft", "are drafts", None),
    ]
    for state, one, more, command in by_state:
        members = [series for series in stack.series if series.state is state and series.patches]
        if members:
            details = ('when one is ready, set state = "pending" in its series.toml',) if state is State.DRAFT else ()
            yield Item(f"{len(members)} series {one if len(members) == 1 else more}: {_names(members)}.", details, command)
    unproved = [series for series in stack.series if series.patches and not series.proves and not series.commands]
    if unproved:
        yield Item(
            f"{len(unproved)} series {'has' if len(unproved) == 1 else 'have'} no proof: {_names(unproved)}.",
            ("name a test module or a command under proves in its series.toml",),
        )


def _droppable(stack: Stack, carried: Sequence[Tried]) -> Iterator[Item]:
    for each in carried:
        landed = [patch for patch in each.patches if patch.outcome == "landed"]
        partly = [patch for patch in each.patches if patch.outcome == "partly-landed" and not patch.needs_person]
        after = f"; drop {{}} after the {len(each.open)} that {_need(len(each.open))} a person" if each.open else ""
        for patches, words in ((landed, ""), (partly, " in part")):
            if patches:
                yield Item(
                    f"{counted(len(patches), 'patch has', 'patches have')} landed{words} in {each.upstream} {each.onto}"
                    f"{after.format('it' if len(patches) == 1 else 'them')}.",
                    tuple(f"{patch.patch.removesuffix('.patch')}: {patch.reason}".rstrip(": ") for patch in patches),
                    _rebase(stack, each),
                )
    for series in stack.series:
        if not series.patches:
            if not lanes.carriers(stack, series.name):
                folders = " and ".join(lanes.folders(stack, series.name))
                yield Item(
                    f"Series {series.name} carries no patch any more.",
                    (f"take it out of stacks/stack.toml and remove {folders}; its proofs then stop",),
                )
        elif series.state is State.MERGED:
            yield Item(
                f"Series {series.name} is merged upstream and still carried.",
                tuple(filter(None, (series.pull, series.drop_when and f"drop when: {series.drop_when}"))),
            )
    unused = _unused_resolutions(stack)
    if unused:
        yield Item(
            f"{counted(len(unused), 'resolution belongs', 'resolutions belong')} to patches that are gone.",
            command=f"stack resolutions drop {' '.join(unused)}",
        )


def _rebase(stack: Stack, each: Tried) -> str:
    """Return the command that carries the patches again: on to the end, or to the first patch that needs a person."""
    if each.workspace is not None:
        return f"stack rebase --continue {each.workspace}"
    through = f" --through {','.join(each.through)}" if each.through else ""
    stops = " --workspace DIR" if each.open else ""
    return f"stack rebase {each.upstream} --onto {each.onto}{lanes.option(stack)}{through}{stops}"


def _need(number: int) -> str:
    return "needs" if number == 1 else "need"


def _unused_resolutions(stack: Stack) -> list[str]:
    """Return the resolutions whose patch no lane carries; none while a lane is invalid, since it may carry any patch."""
    known = {ref.path for ref in stack.patches}
    unused = {name: each for name, each in resolutions.standing(stack.root).named.items() if each.patch not in known}
    others = lanes.others(stack).values() if unused else ()
    if None in others:
        return []
    needed = {ref.path for other in others if other is not None for ref in other.patches}
    return [name for name, each in unused.items() if each.patch not in needed]


def _names(members: Sequence[Series]) -> str:
    return ", ".join(series.name for series in members)
