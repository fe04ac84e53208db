# SPDX-License-Identifier: Apache-2.0
"""Print guards: a summary, then what needs a person, then what has moved."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stack.base.text import counted
from stack.carry.guards.judgement import Guarded, State
from stack.cli.rendering.text import one_line
from stack.cli.sentences import fact, say
from stack.model.guards import Guard

_COLOURS: Mapping[State, Mapping[str, Any]] = {State.MOVED: {"fg": "cyan"}, State.BROKEN: {"fg": "red", "bold": True}}


def print_guards(found: Sequence[Guarded], lane: str = "") -> None:
    """Print judged guards; nothing if there are none. `lane`: the option that names the lane in commands."""
    if not found:
        return
    counts = Counter(each.state for each in found)
    listed = ", ".join(f"{counts[state]} {state.value}" for state in State if counts[state])
    say(f"{counted(len(found), 'guard')}: {listed}")
    for state in (State.BROKEN, State.MOVED):
        for each in found:
            if each.state is state:
                _print(each, lane)


def _print(each: Guarded, lane: str) -> None:
    name, judged = each.guard.name, each.judgement
    fact(one_line(f"{each.state.value} {name}: {judged.problem}"), indent="  ", mark=each.state.value, **_COLOURS[each.state])
    for line in (each.place, f"since {each.since}" if each.cause is not None else "", f"guarded: {each.guard.reason}"):
        if line:
            fact(one_line(line), indent="    ")
    if each.needs_person:
        say(*next_step(each, lane), indent="    ")


def next_step(each: Guarded, lane: str = "") -> tuple[str, str]:
    """Return what to do about a broken guard, and the command for it."""
    name = each.guard.name
    if each.judgement.renewed is None:
        return "next: correct your code and the target, or drop the guard:", f"stack guard drop {name}{lane}"
    return "next: look, correct your code, then accept it at the pin:", f"stack guard accept {name}{lane}"


def guard_json(guard: Guard) -> dict[str, object]:
    """Return a guard as all commands print it in JSON."""
    return {
        "name": guard.name,
        "upstream": guard.upstream,
        "kind": guard.kind.value,
        "target": guard.target,
        "reason": guard.reason,
        "at": guard.at or None,
        "text": guard.text or None,
        "file": guard.file or None,
        "hash": guard.hash or None,
        "signature": guard.signature or None,
        "defined": guard.defined or None,
    }


def guarded_json(each: Guarded) -> dict[str, object]:
    """Return a judged guard as all commands print it in JSON."""
    judged, cause = each.judgement, each.cause
    return {
        "guard": guard_json(each.guard),
        "state": each.state.value,
        "revision": each.revision,
        "path": judged.path,
        "line": judged.line,
        "problem": judged.problem or None,
        "share": None if judged.share is None else round(judged.share, 4),
        "diff": judged.diff or None,
        "cause": None
        if cause is None
        else {"commit": cause.commit, "subject": cause.subject, "date": cause.date or None, "release": cause.release},
        "renewable": judged.renewed is not None,
    }
