# SPDX-License-Identifier: Apache-2.0
"""The night's work: examine every upstream, and keep its issue and its pull request. Killed at any moment, the next run finishes."""

import contextlib
import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.forge.asking import RefusedError
from stack.forge.threads import Threads
from stack.model import lanes
from stack.proof import environment
from stack.store import cache
from stack.watch import observing, own_repository, proving, status, workflow
from stack.watch.keeping import Keeper
from stack.watch.night import Night
from stack.watch.observing import Proving, Reporter
from stack.watch.own_repository import OwnRepository
from stack.watch.proof_file import ProofFile, Proved


@dataclass(frozen=True, slots=True)
class Order:
    """A request for a run: the upstreams (default: all), the time in UTC, and whether it only shows what it would write.

    `prove` runs the proofs on the release of the pull request, with the interpreter `python` if it is set. `proofs` are results of
    another run instead. `lanes` are the lanes beside `main` that get a pull request.
    """

    upstreams: tuple[str, ...]
    now: datetime
    dry_run: bool = False
    prove: bool = False
    python: Path | None = None
    proofs: ProofFile | None = None
    lanes: tuple[str, ...] = ()
    all_lanes: bool = False


@dataclass(frozen=True, slots=True)
class Watched:
    """The result for one upstream. `writes` says what was written; `problem` why it could not be examined or kept, if so.

    `pulls` are the numbers of the open pull requests by lane, and `releases` those that they carry the lanes to.
    """

    upstream: str
    night: Night | None
    writes: tuple[str, ...]
    issue: int | None = None
    pulls: Mapping[str, int | None] = field(default_factory=dict)
    releases: Mapping[str, str | None] = field(default_factory=dict)
    problem: StackError | None = None


def run(own: OwnRepository, forge: Threads, place: Place, order: Order, reporter: Reporter) -> Iterator[Watched]:
    """Do a night's work, and yield the result for each upstream. A failure with one upstream leaves the others alone.

    Args:
        own: the user's repository.
        forge: its issues and pull requests.
        place: where sources are stored.
        order: what is asked for.
        reporter: writes the report for the issue.

    Raises:
        StackError: the user's repository cannot be read, its stack is invalid, or has no such lane.

    """
    name = hashlib.sha256(own.address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    with contextlib.ExitStack() as opened:
        # Two runs at once would both find no issue.
        opened.enter_context(
            cache.lock(place.cache / "watch" / name, lambda: place.progress("waiting for another run", 0, None))
        )
        copy = opened.enter_context(own_repository.copied(own, forge.default_branch()))
        stores = {lane: opened.enter_context(Stores(stack, place)) for lane, stack in lanes.carried(copy.root).items()}
        asked = _asked(stores, order)
        page = _runs_page(forge, order.now)

        def prover(wanted: Proving) -> tuple[str, ...]:
            if order.proofs is not None:
                return order.proofs.of(wanted)
            return proving.sentences(wanted.root, wanted.lane, place, order.python) if order.prove else ()

        for upstream in observing.upstreams(stores[None].stack, order.upstreams):
            keeper = Keeper(forge, copy, upstream, order.dry_run, lambda step: place.progress(step, 0, None))
            observe = functools.partial(observing.observe, copy, stores, upstream, asked, reporter, prover)
            yield _watched(keeper, order.now.date(), page, observe)


def prove(root: Path, place: Place, order: Order) -> Iterator[Proved]:
    """Carry the stack of a checkout to each upstream's newest release, and run its proofs there. No forge is asked.

    Args:
        root: the stack's folder.
        place: where sources and results are stored.
        order: what is asked for.

    Raises:
        StackError: the checkout has no valid stack, or no such lane.

    """
    environment.drop_secrets()  # some runners give each job one that nobody asked for
    with contextlib.ExitStack() as opened:
        copy = opened.enter_context(own_repository.copied_here(root))
        stores = {lane: opened.enter_context(Stores(stack, place)) for lane, stack in lanes.carried(copy.root).items()}

        def prover(wanted: Proving) -> tuple[str, ...]:
            return proving.sentences(wanted.root, wanted.lane, place, order.python)

        for upstream in observing.upstreams(stores[None].stack, order.upstreams):
            for lane in _asked(stores, order):
                carried = observing.carry(copy, stores[lane], upstream, prover)
                if carried is None:
                    yield Proved(upstream, lanes.named(lane), None, None)
                else:
                    yield Proved(upstream, carried.lane, carried.release, carried.commit, carried.proofs)


def _asked(stores: Mapping[str | None, Stores], order: Order) -> tuple[str | None, ...]:
    """Return the lanes that get a pull request.

    Raises:
        StackError: the stack has no such lane.

    """
    if order.all_lanes:
        return tuple(stores)
    wanted = [lanes.key(lane) for lane in order.lanes]
    for lane in wanted:
        if lane not in stores:
            raise StackError(f"the stack has no lane {lane}", f"it has {', '.join(map(lanes.named, stores))}")
    return tuple(dict.fromkeys((None, *wanted)))


def _runs_page(forge: Threads, now: datetime) -> str:
    """Return the address where the forge shows the nightly runs; empty if it shows none, or none that is new."""
    try:
        runs = forge.runs(workflow.NAME, 1)
    except RefusedError:  # the token may not read them
        return ""
    hours = status.hours(runs[0].began, now) if runs else None
    return forge.runs_page(workflow.NAME) if hours is not None and hours <= status.OVERDUE else ""


def _watched(keeper: Keeper, today: date, page: str, observe: Callable[[], observing.Observed]) -> Watched:
    night, problem = None, None
    releases: dict[str, str | None] = {}
    try:
        observed = observe()
        night = observed.night
        releases = {lane: made.release if made is not None else None for lane, made in observed.carried.items()}
        notes = [keeper.keep_pull(made, lane) for lane, made in observed.carried.items()]
        keeper.keep_issue(night, today, "\n".join(filter(None, notes)), page)
    except StackError as failed:
        problem = failed
    return Watched(keeper.upstream, night, tuple(keeper.done), keeper.issue_number, keeper.pulls, releases, problem)
