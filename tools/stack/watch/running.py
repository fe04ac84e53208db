# SPDX-License-Identifier: Apache-2.0
"""The night's work: examine every upstream, and keep its issue and its pull request. Killed at any moment, the next run finishes."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.forge.threads import Threads
from stack.model import lanes
from stack.store import cache
from stack.watch import observing, own_repository, proving
from stack.watch.keeping import Keeper
from stack.watch.night import Night
from stack.watch.observing import Reporter
from stack.watch.own_repository import OwnRepository


@dataclass(frozen=True, slots=True)
class Order:
    """A request for a run: the upstreams (default: all), the day in UTC, and whether it only shows what it would write.

    `prove` runs the proofs on the release of the pull request, with the interpreter `python` if it is set.
    """

    upstreams: tuple[str, ...]
    today: date
    dry_run: bool = False
    prove: bool = False
    python: Path | None = None


@dataclass(frozen=True, slots=True)
class Watched:
    """The result for one upstream. `writes` says what was written; `problem` why it could not be examined or kept, if so.

    `release` is the one that the pull request carries the stack to.
    """

    upstream: str
    night: Night | None
    writes: tuple[str, ...]
    issue: int | None = None
    pull: int | None = None
    release: str | None = None
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
        StackError: the user's repository cannot be read, or its stack is invalid.

    """
    name = hashlib.sha256(own.address.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    with contextlib.ExitStack() as opened:
        # Two runs at once would both find no issue.
        opened.enter_context(
            cache.lock(place.cache / "watch" / name, lambda: place.progress("waiting for another run", 0, None))
        )
        copy = opened.enter_context(own_repository.copied(own, forge.default_branch()))
        stores = {lane: opened.enter_context(Stores(stack, place)) for lane, stack in lanes.carried(copy.root).items()}

        def prover(root: Path) -> tuple[str, ...]:
            return proving.sentences(root, place, order.python) if order.prove else ()

        for upstream in observing.upstreams(stores[None].stack, order.upstreams):
            keeper = Keeper(forge, copy, upstream, order.dry_run, lambda step: place.progress(step, 0, None))
            yield _watched(keeper, order, lambda: observing.observe(copy, stores, upstream, reporter, prover))  # noqa: B023


def _watched(keeper: Keeper, order: Order, observe: Callable[[], observing.Observed]) -> Watched:
    night, release = None, None
    problem = None
    try:
        observed = observe()
        night = observed.night
        release = observed.carried.release if observed.carried is not None else None
        note = keeper.keep_pull(observed.carried)
        keeper.keep_issue(night, order.today, note)
    except StackError as failed:
        problem = failed
    return Watched(keeper.upstream, night, tuple(keeper.done), keeper.issue_number, keeper.pull_number, release, problem)
