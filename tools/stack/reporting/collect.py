# SPDX-License-Identifier: Apache-2.0
"""Make reports from a stack, a rebase, forecasts and a triage."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from stack.base.addresses import redacted
from stack.carry import evidence
from stack.carry.evidence import short_ids
from stack.carry.forecast import Forecast
from stack.carry.outcome import Carried, Outcome
from stack.carry.rebase import Leg, Rebase
from stack.model import digest
from stack.model.diff import counts
from stack.model.patch import Patch, files
from stack.model.pins import Pin
from stack.model.series import Series
from stack.model.stack import Stack
from stack.reporting.elements import is_safe
from stack.reporting.report import Cell, Ladder, Landing, PatchLine, PinLine, Report, Row, SeriesLine

if TYPE_CHECKING:
    from stack.carry.ladder import Rung
    from stack.carry.triage import Triage

_COMMIT_PAGES = ("https://github.com/", "https://gitlab.com/", "https://codeberg.org/")
"""Servers that show a commit at `<repository>/commit/<id>`."""

_AT_THE_END = (Outcome.MOVED, Outcome.DRIFTED, Outcome.DROPPED_UPSTREAM)
"""Outcomes that only the end of the way shows."""


def of_stack(stack: Stack, *, made: int, legs: Sequence[Leg] = (), title: str = "") -> Report:
    """Report on a stack and, with the `legs` of a rebase, on what became of its patches.

    Args:
        stack: The stack; after a rebase, the one before.
        made: The time of the report, in seconds since the epoch.
        legs: The parts of a rebase or of forecasts.
        title: What the report is about. Default: the stack's folder.

    """
    shown = [leg for leg in legs if leg.carry.rows]
    recorded = chain.from_iterable(_recorded(series) for series in stack.series)
    patches = tuple(_patch(stack.patches[ref], ref.path.removesuffix(".patch")) for one in stack.series for ref in one.patches)
    return Report(
        title=title or f"Stack {stack.root.resolve().name}",
        made=made,
        digest=digest.of(stack),
        pins=tuple(_pin(pin) for pin in stack.pins),
        series=tuple(_series(series) for series in stack.series),
        patches=patches,
        ladders=tuple(_ladder(leg) for leg in shown),
        landings=(*chain.from_iterable(_landings(leg) for leg in shown), *recorded),
    )


def of_rebase(work: Rebase, *, made: int) -> Report:
    """Report on a rebase."""
    title = f"Rebase of {work.request.upstream} onto {short_ids(work.request.tag)}"
    report = of_stack(work.stack, made=made, legs=work.legs, title=title)
    return _with_notes(report, _notes(work), len(work.broken_guards))


def of_forecasts(stack: Stack, forecasts: Sequence[Forecast], *, made: int) -> Report:
    """Report on forecasts of one stack."""
    names = ", ".join(f"{each.upstream} {short_ids(each.revision)}" for each in forecasts)
    legs = [leg for each in forecasts for leg in each.work.legs]
    report = of_stack(stack, made=made, legs=legs, title=f"Forecast for {names}")
    notes = (note for each in forecasts for note in _notes(each.work))
    return _with_notes(report, notes, sum(len(each.work.broken_guards) for each in forecasts))


def of_triage(result: "Triage", *, base: str, made: int) -> Report:
    """Report on a triage; `base` is the user's name of the old base."""
    old, rungs = short_ids(base), result.rungs
    rows = [(row.name, row.carried) for row in result.rows]
    return Report(
        title=f"Triage from {old} onto {short_ids(rungs[-1].name)}",
        made=made,
        patches=tuple(_patch(row.patch, name, foreign=True) for name, row in rows),
        ladders=(_made("", old, rungs, rows),),
        landings=tuple(_landing(name, "", row, None) for name, row in rows if row.outcome is Outcome.LANDED),
    )


def _notes(work: Rebase) -> Iterable[str]:
    """Yield the requirements that are not met, and the guards that do not hold where they did."""
    yield from (need.sentence(work.pins().get(need.needs)) for need in work.unmet)
    yield from (each.sentence for each in work.guards if each.judgement.problem)


def _with_notes(report: Report, notes: Iterable[str], broken_guards: int) -> Report:
    return replace(report, notes=tuple(notes), broken_guards=broken_guards)


def _ladder(leg: Leg) -> Ladder:
    rows = [(row.patch.ref.path.removesuffix(".patch"), row) for row in leg.carry.rows]
    return _made(leg.upstream, leg.old.shown, leg.carry.rungs, rows)


def _made(upstream: str, old: str, rungs: "Sequence[Rung]", rows: Sequence[tuple[str, Carried]]) -> Ladder:
    releases = tuple(short_ids(rung.name) for rung in rungs)
    made = tuple(_row(name, row, [rung.name for rung in rungs]) for name, row in rows)
    return Ladder(upstream, short_ids(old), releases[-1], releases, made)


def _row(name: str, row: Carried, rungs: Sequence[str]) -> Row:
    steps = {step.rung: step for step in row.steps}
    cells: list[Cell | None] = []
    for rung in rungs:
        step = steps.get(rung)
        cells.append(Cell(short_ids(rung), step.outcome, step.open) if step is not None else None)
    if cells[-1] is None and not steps:
        # It does not apply to the old base, so no release was tried.
        cells[-1] = Cell(short_ids(rungs[-1]), row.outcome, row.needs_person)
    elif (
        cells[-1] is not None and row.outcome in _AT_THE_END and (not cells[-1].open or row.outcome is Outcome.DROPPED_UPSTREAM)
    ):
        cells[-1] = Cell(cells[-1].release, row.outcome, row.needs_person)
    return Row(
        name=name,
        subject=row.patch.subject,
        outcome=row.outcome,
        open=row.needs_person,
        cells=tuple(cells),
        evidence=evidence.lines(row),
        decided=short_ids(evidence.decided(row)),
    )


def _landings(leg: Leg) -> Iterable[Landing]:
    for row in leg.carry.rows:
        if row.outcome is Outcome.LANDED:
            yield _landing(row.patch.ref.path.removesuffix(".patch"), leg.upstream, row, leg.new)


def _landing(name: str, upstream: str, row: Carried, pin: Pin | None) -> Landing:
    found = row.landed
    release = short_ids(found.rung if found is not None else row.rung)
    if found is None or found.behaviour:
        return Landing(name, upstream, release, subject=found.subject if found is not None else None, carried=True)
    # Without history, the "commit" is the release in the store, which nobody else knows.
    known = found.subject != found.rung
    return Landing(
        name,
        upstream,
        release,
        commit=found.commit[:12] if known else None,
        subject=found.subject if known else None,
        address=_commit_page(pin, found.commit) if known else None,
        carried=True,
    )


def _recorded(series: Series) -> Iterable[Landing]:
    for landed in series.landed:
        yield Landing(landed.ref.path.removesuffix(".patch"), landed.ref.upstream, short_ids(landed.release))


def _pin(pin: Pin) -> PinLine:
    tag = pin.tag or ("vendored" if pin.within is not None else None)
    return PinLine(pin.upstream, tag, pin.commit[:12], _commit_page(pin, pin.commit))


def _commit_page(pin: Pin | None, commit: str) -> str | None:
    """Return the web page of a commit, for servers whose addresses are known."""
    if pin is None:
        return None
    address = redacted(pin.git).removesuffix(".git").rstrip("/")
    return f"{address}/commit/{commit}" if address.startswith(_COMMIT_PAGES) and is_safe(address) else None


def _series(series: Series) -> SeriesLine:
    own = (series.pull,) if series.pull is not None else ()
    pulls = tuple(dict.fromkeys((*own, *(pulled.address for pulled in series.pulls))))
    return SeriesLine(series.name, series.title, series.state.value, series.needs, pulls)


def _patch(patch: Patch, name: str, *, foreign: bool = False) -> PatchLine:
    added, removed = counts(files(patch))
    series, upstream = ("", "") if foreign else (patch.ref.series, patch.ref.upstream)
    return PatchLine(name, patch.subject, series, upstream, added, removed, _written(patch.author.date))


def _written(date: str) -> int | None:
    """Read the seconds of git's raw date; zero stands for a date that is not known."""
    seconds = date.partition(" ")[0]
    return int(seconds) if seconds.isdecimal() and len(seconds) < 12 and int(seconds) else None
