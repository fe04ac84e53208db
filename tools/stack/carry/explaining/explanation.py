# SPDX-License-Identifier: Apache-2.0
"""Explain one patch, on its pin or on the way to a release: facts, outcome, upstream's changes, both sides, and what to do."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.text import counted
from stack.carry import history, patch_facts
from stack.carry.explaining import lines, sides, upstream
from stack.carry.explaining.sides import Sides
from stack.carry.explaining.upstream import UpstreamChange
from stack.carry.history import Index
from stack.carry.ladder import Rung
from stack.carry.outcome import Carried, Outcome
from stack.carry.patch_facts import PatchFacts
from stack.carry.rebase import Leg, Rebase, Request, rebase
from stack.carry.upstream_stores import Stores
from stack.carry.workspace import Session
from stack.model import lanes
from stack.model.patch import files
from stack.model.pins import Source
from stack.model.stack import Stack
from stack.store.remote import ungrafted


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run next, and what it does."""

    command: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about a patch, or about its conflict on the way to a release.

    `old` and `new` are the revisions of its upstream; `new` is None without a release to explain it on. `steps`: how many
    upstream commits (or releases) changed the patch's files. `unknown`: sentences on what cannot be known here, and why.
    """

    facts: PatchFacts
    source: Source
    old: str
    new: str | None = None
    row: Carried | None = None
    changes: tuple[UpstreamChange, ...] = ()
    steps: int = 0
    history: bool = False
    sides: tuple[Sides, ...] = ()
    carried: bytes | None = None
    unknown: tuple[str, ...] = ()
    next: tuple[Step, ...] = ()
    workspace: Path | None = None


def of_patch(stores: Stores, name: str, onto: str | None, through: tuple[str, ...] = ()) -> Explanation:
    """Explain a patch; with `onto`, also what becomes of it on another release and why.

    Raises:
        StackError: No patch has that name, a source cannot be obtained, or there is no such release.

    """
    facts = patch_facts.facts(stores.stack, name)
    pin = stores.stack.pins.get(facts.ref.upstream)
    if onto is None:
        blank = Explanation(facts, stores.source(pin.upstream), pin.shown)
        return replace(blank, unknown=tuple(_unknown(blank)), next=tuple(_next(stores.stack, blank, pin.upstream)))
    moved = pin.upstream if pin.within is None else pin.within.upstream
    work = rebase(stores, Request(moved, stores.resolve(moved, onto), through=through))
    return _explained(stores, work, facts)


def of_workspace(stores: Stores, session: Session, folder: Path) -> Explanation:
    """Explain the conflict at which a rebase has stopped in a working tree.

    Raises:
        StackError: A source cannot be obtained, or the stack no longer has the patch.

    """
    work = rebase(stores, session.request)
    return _explained(stores, work, patch_facts.facts(stores.stack, session.patch), folder)


def _explained(stores: Stores, work: Rebase, facts: PatchFacts, folder: Path | None = None) -> Explanation:
    leg, number = next(
        (leg, number) for leg in work.legs for number, row in enumerate(leg.carry.rows) if row.patch.ref == facts.ref
    )
    row, objects = leg.carry.rows[number], stores.objects(leg.upstream)
    explanation = Explanation(
        facts,
        stores.source(leg.upstream),
        leg.old.shown,
        leg.new.shown,
        row,
        sides=sides.of_row(objects, row),
        carried=leg.carry.exported.get(facts.ref.path),
        workspace=folder,
    )
    with contextlib.ExitStack() as opened:
        index = _index(stores, leg)
        touched: list[lines.Touched] = []
        if index is not None:
            opened.enter_context(contextlib.closing(index))
            before = leg.carry.sources[number - 1] if number else leg.carry.base
            trees = objects.tree_of(leg.carry.base), objects.tree_of(before)
            regions = lines.changed_lines(objects, *trees, files(facts.patch))
            for path, around in regions.items():
                touched += lines.touching(objects, index, path, around)
            steps = {touch.step.number for path in regions for touch in index.touching(path)}
            explanation = replace(explanation, steps=len(steps), history=not index.releases)
        changes = upstream.changes(objects, leg.old, row, sorted(touched, key=lambda touch: touch.step.number), index)
    explanation = replace(explanation, changes=changes)
    asked = work.request.upstream
    return replace(
        explanation,
        unknown=tuple(_unknown(explanation)),
        next=tuple(_next(stores.stack, explanation, asked, work)),
    )


def _index(stores: Stores, leg: Leg) -> Index | None:
    """Open the index of upstream's changes that the rebase has made; None if the upstream stays where it is."""
    if leg.carry.base == leg.carry.onto:
        return None
    objects = stores.objects(leg.upstream)
    past = ungrafted(objects, leg.carry.base)
    rungs = [Rung(rung.name, ungrafted(objects, rung.commit)) for rung in leg.carry.rungs]
    return history.index(objects, past, rungs, stores.place.cache)


def _unknown(explanation: Explanation) -> Iterator[str]:
    """Yield what cannot be known, and how to learn it."""
    facts, row = explanation.facts, explanation.row
    if explanation.new is None:
        yield f"What upstream did since {explanation.old}, and what becomes of the patch there: add --onto REV."
    elif explanation.source == "archive":
        yield (
            "Which upstream commits did this, and why: the sources are release archives without history. "
            "--source git reads the commits and their messages."
        )
    elif not explanation.history and row is not None and explanation.steps:
        yield "Which upstream commits did this: the two revisions have no common history."
    if any(change.message == "" for change in explanation.changes if not change.release):
        yield "Some upstream commits have no message below the subject; their pull requests may say why."
    if not facts.proofs:
        yield f"Whether the patch works: no test is named in `proves` of stacks/{facts.series.name}/series.toml."
    if row is not None and row.outcome in (Outcome.CLEAN, Outcome.MOVED, Outcome.RELOCATED, Outcome.RESOLVED):
        yield "Whether the patch still does what it should: that it applies does not show it. The proof does."


def _next(stack: Stack, explanation: Explanation, asked: str, work: Rebase | None = None) -> Iterator[Step]:
    """Yield the commands to run next, in order."""
    facts, row, lane = explanation.facts, explanation.row, lanes.option(stack)
    prove = f"stack prove {facts.series.name}{lane}"
    if work is None or row is None:
        if facts.proofs:
            yield Step(prove, "run its proof: it passes with the patch and fails without it")
        return
    request, others = work.request, sum(other.patch.ref != facts.ref for _, other in work.open)
    through = f" --through {','.join(request.through)}" if request.through else ""
    again = f"stack rebase {asked} --onto {request.tag}{lane}{through}"
    if explanation.workspace is not None:
        yield Step(f"git add PATHS (in {explanation.workspace})", "after you have resolved the conflict there")
        yield Step(f"stack rebase --continue {explanation.workspace}", "go on; --skip in its place drops the patch")
    elif row.needs_person:
        yield Step(f"{again} --workspace DIR", "resolve it in a working tree")
    elif others:
        needing = counted(others, "patch that needs", "patches that need")
        yield Step(f"{again} --workspace DIR", f"move the stack, after the {needing} a person")
    else:
        yield Step(again, "move the stack; `stack undo` takes it back")
    if row.outcome is Outcome.LANDED:
        if facts.proofs and row.conflicts == ():
            yield Step(f"{prove} --onto {asked}={request.tag}", "check that its proof passes there without the patch")
    elif facts.proofs:
        yield Step(prove, "after the switch: check that it still works and is still needed")
