# SPDX-License-Identifier: Apache-2.0
"""Ask the forge for the state of our pull requests, and derive the state of their series."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stack.carry.upstream_stores import Stores
from stack.forge.github import GitHub
from stack.forge.repositories import Checks, Pull, PullState, Repository, Reviews
from stack.model import lanes
from stack.model import series as model
from stack.model import stack as stacks
from stack.model.ids import CommitId
from stack.model.patch import files as files_of
from stack.model.series import PatchRef, Series, State
from stack.model.stack import Stack
from stack.upstreaming import duplicates, recorded

_BY_HAND = frozenset({State.DECLINED, State.INAPPROPRIATE})
"""States that only a person sets and resets."""


@dataclass(frozen=True, slots=True)
class Followed:
    """One of our pull requests, with the patches that it takes upstream.

    `pull` is None if the address cannot be queried; `problem` says why. `behind` is the number of commits of its base that it
    lacks, None if it is closed. `share` is the weighted share of our patches in the merged change, None if it was not merged.
    """

    series: str
    upstream: str
    refs: tuple[PatchRef, ...]
    address: str
    pull: Pull | None = None
    reviews: Reviews = field(default_factory=Reviews)
    checks: Checks = field(default_factory=Checks)
    behind: int | None = None
    share: float | None = None
    problem: str = ""

    @property
    def needs_person(self) -> bool:
        """Return whether somebody has to act before it can be merged."""
        refused = self.pull is None or self.pull.state is PullState.CLOSED
        return refused or bool(self.reviews.changes or self.checks.failed)


def follow(
    stores: Stores, names: Sequence[str], upstreams: Sequence[str], github: Callable[[str], GitHub]
) -> Iterator[Followed]:
    """Ask the forge for the recorded pull requests of some series to some upstreams.

    Args:
        stores: the stack and its sources.
        names: the series; all if empty.
        upstreams: the upstreams; all if empty.
        github: returns the client for a host.

    Raises:
        StackError: a name is unknown, or GitHub cannot be asked.

    """
    stack = stores.stack
    chosen = [stack.get(name) for name in names] or stack.series
    for name in upstreams:
        stack.pins.get(name)
    for series in chosen:
        for address, refs in recorded.pulls(series).items():
            upstream = recorded.upstream(stack, address, refs)
            if upstream is not None and (not upstreams or upstream in upstreams):
                yield _followed(stores, series, upstream, refs, address, github)
            elif upstream is None and not upstreams:
                problem = "this address belongs to no upstream in pins.toml"
                yield Followed(series.name, "", refs, address, problem=problem)


def states(stack: Stack, followed: Sequence[Followed]) -> dict[str, State]:
    """Return the series whose recorded state is out of date, with the state that follows from their pull requests."""
    changed: dict[str, State] = {}
    for series in stack.series:
        own = [pull for pull in followed if pull.series == series.name]
        state = _state(series, own)
        if state is not None and state is not series.state and series.state not in _BY_HAND:
            changed[series.name] = state
    return changed


def record(stack: Stack, changed: dict[str, State]) -> None:
    """Write states into the series' files in one switch.

    Raises:
        StackError: a file cannot be written, or changed after it was read.

    """
    paths = {name: f"{stacks.FOLDER}/{name}/{model.FILE}" for name in changed}
    before = {path: lanes.text(stack, path) for path in paths.values()}
    after = {path: model.with_pulls(before[path], (), changed[name]).encode("utf-8") for name, path in paths.items()}
    expected = {path: text.encode("utf-8") for path, text in before.items()}
    lanes.apply(stack, after, title="export-pr --status", expected=expected)


def _followed(
    stores: Stores, series: Series, upstream: str, refs: tuple[PatchRef, ...], address: str, github: Callable[[str], GitHub]
) -> Followed:
    place = recorded.place(address)
    assert place is not None
    repository, number = place
    client = github(repository.host)
    stores.tell(f"asking {repository.host} for {repository.shown}#{number}")
    pull = client.pull(repository, number)
    ours = tuple(ref for ref in refs if ref.upstream == upstream)
    if not pull.state.lives:
        share = _share(stores, upstream, ours, client, repository, number) if pull.state is PullState.MERGED else None
        return Followed(series.name, upstream, ours, address, pull, share=share)
    return Followed(
        series.name,
        upstream,
        ours,
        address,
        pull,
        client.reviews(repository, number),
        client.checks(repository, pull.commit),
        client.behind(repository, pull.base, pull.commit),
    )


def _share(
    stores: Stores, upstream: str, refs: Sequence[PatchRef], client: GitHub, repository: Repository, number: int
) -> float | None:
    """Compute the share of our patches in the merged change: reviewers may have had it changed."""
    diff = client.diff(repository, number)
    files = [file for ref in refs for file in files_of(stores.stack.patches[ref])]
    if diff is None or not files:
        return None
    objects = stores.objects(upstream)
    (overlap,) = duplicates.overlaps(objects, objects.tree_of(CommitId(stores.base(upstream))), files, [diff])
    return overlap.ours


def _state(series: Series, own: Sequence[Followed]) -> State | None:
    """Derive a series' state from its pull requests; None if they determine none."""
    pulls = [(entry.refs, entry.pull) for entry in own if entry.pull is not None]
    if any(pull.state.lives for _, pull in pulls):
        return State.SUBMITTED
    done = {ref for refs, pull in pulls if pull.state is PullState.MERGED for ref in refs}
    closed = {ref for refs, pull in pulls if pull.state is PullState.CLOSED for ref in refs}
    return State.MERGED if series.patches and done - closed == set(series.patches) else None
