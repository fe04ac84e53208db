# SPDX-License-Identifier: Apache-2.0
"""Find out what became of an upstream's patches: carry every lane to the newest release and to the main branch."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import printable
from stack.carry import evidence
from stack.carry.forecast import NIGHTLY, Forecast
from stack.carry.ladder import AUTO
from stack.carry.outcome import Outcome
from stack.carry.rebase import Conclusion, Rebase, Request, conclude, range_diff, rebase
from stack.carry.upstream_stores import Stores
from stack.model import lanes
from stack.model.stack import Stack
from stack.watch import own_repository
from stack.watch.night import GUARD, Aim, CarriedRelease, Night, PatchRow, Trial
from stack.watch.own_repository import Copy

_TRIED = 10
"""Maximal number of releases that are tried for a pull request, the newest first."""
Reporter = Callable[[Stack, Sequence[Forecast]], str]
"""Writes a report on forecasts as Markdown."""
Prover = Callable[["Proving"], tuple[str, ...]]
"""Returns how each proof of a carried stack ended."""


@dataclass(frozen=True, slots=True)
class Proving:
    """A carried stack whose proofs are asked for: its folder, the lane that moved, the upstream, the release and the commit."""

    root: Path
    lane: str | None
    upstream: str
    release: str
    commit: str


@dataclass(frozen=True, slots=True)
class Observed:
    """The findings, and by lane the stack on a newer release; None where not all patches carry to one."""

    night: Night
    carried: Mapping[str, CarriedRelease | None]


def observe(
    copy: Copy,
    stores: Mapping[str | None, Stores],
    upstream: str,
    asked: Collection[str | None],
    reporter: Reporter,
    prover: Prover,
) -> Observed:
    """Carry an upstream's patches in every lane, and commit the result for the newest release that takes all of them.

    Args:
        copy: the copy of the user's default branch.
        stores: the stack's stores as each lane sees them; None is for what stands in no lane.
        upstream: a released upstream.
        asked: the lanes whose result is committed.
        reporter: writes the report.
        prover: runs the proofs of the carried stack.

    Raises:
        StackError: upstream cannot be reached, or a patch does not apply to its own pin.

    """
    trials: list[Trial] = []
    forecasts: dict[str | None, list[Forecast]] = {lane: [] for lane in stores}
    for lane, opened in stores.items():
        for aim, work in _works(opened, upstream):
            trials.append(_trial(lane, aim, work))
            forecasts[lane].append(Forecast(upstream, NIGHTLY, work.request.tag, work))
    report = reporter(stores[None].stack, forecasts[None]) if forecasts[None] else ""
    carried = {
        lanes.named(lane): _carried(copy, opened, upstream, forecasts[lane], prover)
        for lane, opened in stores.items()
        if lane in asked
    }
    return Observed(Night(upstream, tuple(trials), report), carried)


def carry(copy: Copy, stores: Stores, upstream: str, prover: Prover) -> CarriedRelease | None:
    """Commit one lane's stack on the newest release that takes all its patches; None if there is none.

    Raises:
        StackError: as `observe`.

    """
    return _carried(copy, stores, upstream, (), prover)


def newer(stores: Stores, upstream: str) -> list[str]:
    """Return upstream's releases after the pinned one, the oldest first; no pre-releases.

    Raises:
        StackError: the registry or the remote cannot be reached.

    """
    pin = stores.stack.pins.get(upstream)
    rule = pin.releases
    listed = rule.ordered(stores.tags(upstream))
    here = rule.version(pin.tag) if pin.tag is not None else None
    return [tag for tag in listed if here is None or ((there := rule.version(tag)) is not None and there > here)]


def _works(stores: Stores, upstream: str) -> Iterator[tuple[Aim, Rebase]]:
    pin = stores.stack.pins.get(upstream)
    releases = newer(stores, upstream)
    if releases:
        stores.tell(f"carrying {upstream} to {releases[-1]}")
        yield Aim.RELEASE, _rebase(stores, upstream, releases[-1])
    main = stores.newest(upstream)
    here = main == pin.tag or main.startswith(pin.commit)
    if not here and main not in _known(stores, upstream, releases[-1:]):
        stores.tell(f"carrying {upstream} to its main branch")
        yield Aim.MAIN, rebase(stores, Request(upstream, main, with_required=True))


def _known(stores: Stores, upstream: str, releases: Sequence[str]) -> Iterator[str]:
    """Yield releases, and their commits if upstream's main branch is named by its commit."""
    yield from releases
    if releases and stores.source(upstream) == "git":
        commits = stores.tag_commits(upstream)
        yield from (commits[release] for release in releases if release in commits)


def _rebase(stores: Stores, upstream: str, tag: str) -> Rebase:
    return rebase(stores, Request(upstream, tag, with_required=True, through=(AUTO,)))


def _trial(lane: str | None, aim: Aim, work: Rebase) -> Trial:
    return Trial(
        lane=lanes.named(lane),
        aim=aim,
        pinned=evidence.short_ids(work.stack.pins.get(work.request.upstream).shown),
        revision=evidence.short_ids(work.request.tag),
        rows=_rows(work),
        unmet=tuple(need.sentence(work.pins().get(need.needs)) for need in work.unmet),
    )


def _rows(work: Rebase) -> tuple[PatchRow, ...]:
    """Return the outcomes of the patches, and the guards that need a person, which are drift of the user's own code."""
    patches = (
        PatchRow(row.patch.ref.path.removesuffix(".patch"), row.outcome, row.needs_person, evidence.lines(row))
        for row in work.rows()
    )
    broken = (
        PatchRow(f"{GUARD}{each.guard.name}", Outcome.DRIFTED, True, tuple(filter(None, (each.judgement.problem, each.since))))
        for each in work.broken_guards
    )
    return (*patches, *broken)


def _carried(copy: Copy, stores: Stores, upstream: str, forecasts: Sequence[Forecast], prover: Prover) -> CarriedRelease | None:
    """Commit the stack on the newest release that takes all patches and whose requirements are met; None if there is none."""
    releases = newer(stores, upstream)
    known = {each.revision: each.work for each in forecasts}
    for tag in releases[: -_TRIED - 1 : -1]:
        work = known.get(tag) or _rebase(stores, upstream, tag)
        if conclude(work, dry_run=True) is Conclusion.DRY_RUN:
            return _committed(copy, stores, work, releases[-1], prover)
    return None


def _committed(copy: Copy, stores: Stores, work: Rebase, newest: str, prover: Prover) -> CarriedRelease | None:
    upstream, tag = work.request.upstream, work.request.tag
    try:
        if conclude(work) is not Conclusion.SWITCHED:
            return None
        commit = own_repository.commit_all(copy, _message(work))
        proofs = prover(Proving(copy.root, stores.stack.lane, upstream, tag, commit))
    finally:
        own_repository.restore(copy)
    diffs = ((leg.upstream, printable(range_diff(stores, leg), kept="\n\t")) for leg in work.legs)
    return CarriedRelease(
        upstream=upstream,
        pinned=evidence.short_ids(stores.stack.pins.get(upstream).shown),
        release=tag,
        newest=newest,
        branch=own_repository.branch(upstream, lanes.named(stores.stack.lane)),
        onto=copy.branch,
        commit=commit,
        rows=_rows(work),
        moved=tuple(
            (leg.upstream, evidence.short_ids(leg.old.shown), evidence.short_ids(leg.new.shown))
            for leg in work.legs
            if leg.moves
        ),
        range_diffs=tuple((name, text) for name, text in diffs if text.strip()),
        emptied=work.emptied,
        proofs=proofs,
        lane=lanes.named(stores.stack.lane),
    )


def _message(work: Rebase) -> str:
    upstream, tag = work.request.upstream, work.request.tag
    landed = [row.patch.ref.path for row in work.rows() if row.outcome is Outcome.LANDED]
    what = "the stack" if work.stack.lane is None else f"lane {work.stack.lane}"
    text = f"pins: carry {what} to {upstream} {tag}\n"
    if landed:
        text += "\nUpstream has these patches, so they are dropped:\n" + "".join(f"- {path}\n" for path in landed)
    return text


def upstreams(stack: Stack, chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the chosen upstreams, or all released ones.

    Raises:
        StackError: one is unknown, or vendored in another one.

    """
    for name in chosen:
        if (within := stack.pins.get(name).within) is not None:
            raise StackError(f"{name} is vendored in {within.upstream}", f"watch {within.upstream}, and it comes along")
    return tuple(chosen) or tuple(pin.upstream for pin in stack.pins if pin.within is None)
