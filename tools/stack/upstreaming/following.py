# SPDX-License-Identifier: Apache-2.0
"""What became of our pull requests upstream, and what that means for the series that they belong to."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from stack.carry.upstream_stores import Stores
from stack.model import series as model
from stack.model import stack as stacks
from stack.model import switch
from stack.model.ids import CommitId
from stack.model.patch import files as files_of
from stack.model.series import PatchRef, Series, State
from stack.model.stack import Stack
from stack.upstreaming import duplicates, recorded
from stack.upstreaming.forge import Checks, Pull, PullState, Repository, Reviews
from stack.upstreaming.github import GitHub

_BY_HAND = frozenset({State.DECLINED, State.INAPPROPRIATE})
"""States that only a person gives, and takes back."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A pull request of ours, by the patches that it takes upstream.

    `pull` is None where the address cannot be asked, `problem` says why. `behind`: how many commits of its base it lacks, None where
    it is no longer open. `share`: how much of our patches is in what was merged, None where it was not merged.
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
        """Whether somebody has to do something before it can be merged."""
        refused = self.pull is None or self.pull.state is PullState.CLOSED
        return refused or bool(self.reviews.changes or self.checks.failed)


def follow(
    stores: Stores, names: Sequence[str], upstreams: Sequence[str], github: Callable[[str], GitHub]
) -> Iterator[Followed]:
    """Every recorded pull request of some series (all without names) to some upstreams (all without names).

    Args:
        stores: the stack and its sources.
        names: series.
        upstreams: upstreams.
        github: the client for a host.

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
                problem = "this address is of no upstream in pins.toml"
                yield Followed(series.name, "", refs, address, problem=problem)


def states(stack: Stack, followed: Sequence[Followed]) -> dict[str, State]:
    """The series whose state is another than what became of their pull requests, with the state that they are in now."""
    found: dict[str, State] = {}
    for series in stack.series:
        own = [one for one in followed if one.series == series.name]
        state = _state(series, own)
        if state is not None and state is not series.state and series.state not in _BY_HAND:
            found[series.name] = state
    return found


def record(stack: Stack, changed: dict[str, State]) -> None:
    """Write states into the series' files, all at once.

    Raises:
        StackError: a file cannot be written, or was changed meanwhile.

    """
    paths = {name: f"{stacks.FOLDER}/{name}/{model.FILE}" for name in changed}
    before = {path: (stack.root / path).read_bytes() for path in paths.values()}
    after = {
        path: model.with_pulls(before[path].decode("utf-8"), (), changed[name]).encode("utf-8") for name, path in paths.items()
    }
    switch.apply(stack.root, after, title="export-pr --status", expected=before)


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
    """How much of our patches is in what was merged: reviewers have things changed."""
    diff = client.diff(repository, number)
    files = [file for ref in refs for file in files_of(stores.stack.patches[ref])]
    if diff is None or not files:
        return None
    objects = stores.objects(upstream)
    (overlap,) = duplicates.overlaps(objects, objects.tree_of(CommitId(stores.base(upstream))), files, [diff])
    return overlap.ours


def _state(series: Series, own: Sequence[Followed]) -> State | None:
    """What its pull requests make of a series; None where they say nothing."""
    pulls = [(one.refs, one.pull) for one in own if one.pull is not None]
    if any(pull.state.lives for _, pull in pulls):
        return State.SUBMITTED
    done = {ref for refs, pull in pulls if pull.state is PullState.MERGED for ref in refs}
    closed = {ref for refs, pull in pulls if pull.state is PullState.CLOSED for ref in refs}
    return State.MERGED if series.patches and done - closed == set(series.patches) else None
