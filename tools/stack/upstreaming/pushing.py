# SPDX-License-Identifier: Apache-2.0
"""Push the branches of pull requests to forks without losing earlier versions or other people's changes.

All branches of all forks are built and compared first. Then each fork gets its branches in one push. A push is recorded before
it starts, and its result after it was seen in the fork, so that an interrupted run can simply be repeated.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import counted, printable
from stack.carry.person import Person, configured
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.store import cache, git, remote, repository
from stack.store import fork as forks
from stack.store.fork import Fork, Move
from stack.store.pushed_refs import PUSHED, PUSHING, record, refs
from stack.store.remote import ungrafted
from stack.upstreaming import versions
from stack.upstreaming.branches import Branch, build
from stack.upstreaming.proposal import Proposal, UpstreamPlan

_DIGITS = 7
"""Digits of a commit id that are enough to name it."""
_SHOWN = 20
"""Maximal number of other people's commits that are shown."""


class PushState(Enum):
    """The state of a branch in a fork after a push."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PushRow:
    """A branch, its fork, and the result of the push.

    `before` is our version that the fork had before, kept as the tag `tag`; `changes` is the file with the range-diff since
    then. `behind` counts commits of the upstream's default branch that the base lacks, None if the base is not a commit of the
    upstream. `differs` lists the commits that only the fork has (`>`), and those that only we have (`<`).
    """

    branch: Branch
    fork: Fork
    state: PushState
    behind: int | None
    before: CommitId | None = None
    tag: str | None = None
    changes: Path | None = None
    reason: str = ""
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The branches of one fork, ready to push."""

    store: Path
    fork: Fork
    rows: tuple[PushRow, ...]


def push(
    stores: Stores, plans: Sequence[UpstreamPlan], chosen: Sequence[Proposal], to: Mapping[str, Fork], over: Sequence[str] = ()
) -> tuple[PushRow, ...]:
    """Build the branches of the chosen proposals, and push those of each upstream to its fork.

    Args:
        stores: the stack's stores.
        plans: the plan of each upstream.
        chosen: the proposals to push.
        to: the fork of each upstream.
        over: commits, given by seven digits or more, that may be replaced in a fork although they were not pushed from here.

    Raises:
        StackError: nothing was pushed because something cannot be; or a connection failed during the push. In the second case the
            next run finds out what arrived.

    """
    person = configured(stores.stack.root)
    planned = {plan.upstream: plan for plan in plans}
    wanted = {upstream: [proposal for proposal in chosen if proposal.upstream == upstream] for upstream in to}
    for proposal in (proposal for proposals in wanted.values() for proposal in proposals):
        _require_real(proposal, to[proposal.upstream])
    with _locked(stores, to) as held:
        making = _Making(stores, person, over)
        prepared = [making.prepare(planned[upstream], wanted[upstream], fork) for upstream, fork in to.items()]
        making.require_used()
        return tuple(row for one_fork in prepared for row in _sent(stores, one_fork, held))


def _require_real(proposal: Proposal, fork: Fork) -> None:
    if not proposal.real and not fork.local:
        raise StackError(
            f"{proposal.name} is based on an archive of {proposal.onto}, which is not a commit of {proposal.upstream}",
            f"stack fetch {proposal.upstream} --source git, then the same with --source git",
        )


@contextlib.contextmanager
def _locked(stores: Stores, upstreams: Mapping[str, Fork]) -> Iterator[Sequence[int]]:
    """Lock the stores, always in the same order, and remove what killed processes left there."""
    with contextlib.ExitStack() as locks:
        held = []
        for store in sorted({stores.objects(upstream).repository for upstream in upstreams}):
            held.append(locks.enter_context(cache.lock(store, lambda: stores.tell("waiting for another process"))))
            repository.sweep(store)
        yield held


class _Making:
    """Builds branches in the stores, and compares them with the branches of the forks."""

    def __init__(self, stores: Stores, person: Person, over: Sequence[str]) -> None:
        self._stores = stores
        self._person = person
        self._over = dict.fromkeys(over, False)

    def prepare(self, plan: UpstreamPlan, chosen: Sequence[Proposal], fork: Fork) -> _Prepared:
        self._stores.tell(f"preparing the branches of {plan.upstream}")
        objects = self._stores.objects(plan.upstream)
        store = objects.repository
        behind = self._behind(store, {ungrafted(objects, proposal.base): proposal for proposal in chosen}, fork)
        branches = build(objects, chosen, plan.proposals, self._person)
        objects.flush()
        remote_refs = forks.look(store, fork, [branch.name for branch in branches])
        self._absorb(store, fork, branches, remote_refs)
        known = refs(store, PUSHED)
        rows = [
            _compared(store, branch, fork, remote_refs, known.get(record(PUSHED, fork, branch.name))) for branch in branches
        ]
        rows = [replace(row, behind=behind[row.branch.base]) for row in rows]
        return _Prepared(store, fork, tuple(_versioned(self._stores.stack.root, store, row, remote_refs) for row in rows))

    def require_used(self) -> None:
        """Refuse to go on if a commit given as `over` is not the tip of any branch of a fork."""
        for commit in (commit for commit, used in self._over.items() if not used):
            raise StackError(
                f"--over {commit}: no branch to push is at that commit", "run it without --over to see what is there"
            )

    def _behind(self, store: Path, bases: Mapping[CommitId, Proposal], fork: Fork) -> Mapping[CommitId, int | None]:
        """Count how far upstream is ahead of each base; refuse a base that upstream or the fork does not have."""
        ahead: dict[CommitId, int | None] = dict.fromkeys(bases)
        for base, proposal in bases.items():
            if not proposal.real:
                continue
            if not remote.is_own(store, base):
                raise StackError(
                    f"{proposal.onto} ({base[:12]}) is not in the history of {proposal.upstream}",
                    f"stack fetch {proposal.upstream} --source git",
                )
            ahead[base] = remote.behind(store, self._stores.stack.pins.get(proposal.upstream).git, base)
            if not forks.has(store, fork, base):
                raise StackError(
                    f"{fork} does not have {proposal.onto} ({base[:12]}) of {proposal.upstream}",
                    "bring the fork up to date first (its forge has a button, `gh repo sync`), or check that it is one of this upstream",
                )
        return ahead

    def _absorb(self, store: Path, fork: Fork, branches: Sequence[Branch], remote_refs: Mapping[str, CommitId]) -> None:
        """Record as ours what an interrupted run sent, if it arrived, and what the user wants to replace."""
        sent = refs(store, PUSHING)
        ours = {}
        for branch in branches:
            now = remote_refs.get(f"refs/heads/{branch.name}")
            if now is not None and (
                now in (branch.tip, sent.get(record(PUSHING, fork, branch.name))) or self._replaces(store, fork, now)
            ):
                ours[record(PUSHED, fork, branch.name)] = now
        repository.set_refs(store, ours)

    def _replaces(self, store: Path, fork: Fork, commit: CommitId) -> bool:
        named = [given for given in self._over if len(given) >= _DIGITS and commit.startswith(given.lower())]
        if not named:
            return False
        self._over |= dict.fromkeys(named, True)
        with _brought(store, fork, commit, contents=True) as place:
            repository.adopt(store, place / "objects/pack", {})
        return True


def _compared(store: Path, branch: Branch, fork: Fork, remote_refs: Mapping[str, CommitId], pushed: CommitId | None) -> PushRow:
    now = remote_refs.get(f"refs/heads/{branch.name}")
    before = pushed if pushed != branch.tip else None
    if now == branch.tip:
        return PushRow(branch, fork, PushState.UNCHANGED, None)
    if now is None:
        gone = "it was deleted there" if pushed is not None else ""
        return PushRow(branch, fork, PushState.NEW, None, before, reason=gone)
    if now == pushed:
        return PushRow(branch, fork, PushState.UPDATED, None, before)
    why = "somebody changed it there" if pushed is not None else "the fork has this branch, but not from here"
    reason = f"{why}: --over {now[:12]} replaces that, and keeps it under a tag"
    return PushRow(branch, fork, PushState.REFUSED, None, reason=reason, differs=_differences(store, fork, branch, pushed, now))


def _differences(store: Path, fork: Fork, branch: Branch, pushed: CommitId | None, now: CommitId) -> tuple[str, ...]:
    """List the commits that only the fork has and those that only the last push has, without storing the fork's commits."""
    show = ["log", "--left-right", "--format=%m %h %an: %s", f"{pushed or branch.tip}...{now}"]
    with _brought(store, fork, now, contents=False) as place:
        output = git.text([*show, "--not", branch.base, *_upstream(store)], env={"GIT_DIR": str(place)})
    lines = [printable(line) for line in output.splitlines()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)


@contextlib.contextmanager
def _brought(store: Path, fork: Fork, commit: CommitId, *, contents: bool) -> Iterator[Path]:
    """Fetch a commit of the fork into a temporary repository that also sees the store's objects and its upstream."""
    with repository.incoming(store, borrowing=True) as place:
        if remote.address(store):
            remote.register(place, remote.address(store))
        forks.bring(place, fork, commit, contents=contents)
        yield place


def _upstream(store: Path) -> Sequence[str]:
    return sorted({commit for ref in remote.OWN for commit in refs(store, ref).values()})


def _versioned(root: Path, store: Path, row: PushRow, remote_refs: Mapping[str, CommitId]) -> PushRow:
    """Set the branch in the store, keep its earlier version under a tag, and write the range-diff to its file."""
    if row.state is PushState.REFUSED:
        return row
    name = row.branch.name
    sent = row.branch.tip if row.state is not PushState.UNCHANGED else None
    moves: dict[str, str | None] = {f"refs/heads/{name}": row.branch.tip, record(PUSHING, row.fork, name): sent}
    if row.before is not None:
        tag = versions.tag(name, row.before, (*refs(store, f"refs/tags/{name}").items(), *remote_refs.items()))
        moves[tag] = row.before
        text = versions.changes(store, row.before, row.branch)
        row = replace(row, tag=tag, changes=versions.keep(root, row.branch.proposal, text))
    repository.set_refs(store, moves)
    return row


def _sent(stores: Stores, prepared: _Prepared, held: Sequence[int]) -> tuple[PushRow, ...]:
    """Push, and return the rows according to what the fork has afterwards."""
    going = [row for row in prepared.rows if row.state in (PushState.NEW, PushState.UPDATED)]
    if not going:
        return prepared.rows
    stores.tell(f"pushing {counted(len(going), 'branch')} to {prepared.fork}")
    store, fork = prepared.store, prepared.fork
    names = [row.branch.name for row in going]
    try:
        refused = forks.push(store, fork, [move for row in going for move in _moves(row)], held)
    except StackError:
        # The push may have arrived, with only the answer lost.
        with contextlib.suppress(StackError):
            remote_refs = forks.look(store, fork, names)
            if all(remote_refs.get(f"refs/heads/{row.branch.name}") == row.branch.tip for row in going):
                return _recorded(store, prepared, remote_refs, {})
        raise
    return _recorded(store, prepared, forks.look(store, fork, names), refused)


def _moves(row: PushRow) -> Iterator[Move]:
    if row.tag is not None and row.before is not None:
        yield Move(row.tag, row.before)
    yield Move(f"refs/heads/{row.branch.name}", row.branch.tip, row.before if row.state is PushState.UPDATED else None)


def _recorded(
    store: Path, prepared: _Prepared, remote_refs: Mapping[str, CommitId], refused: Mapping[str, str]
) -> tuple[PushRow, ...]:
    """Record the fork's branches; a branch that the fork accepted but does not have is refused, too."""
    done: dict[str, str | None] = {}
    rows = []
    for row in prepared.rows:
        name = row.branch.name
        has = remote_refs.get(f"refs/heads/{name}")
        if row.state not in (PushState.NEW, PushState.UPDATED):
            rows.append(row)
        elif has == row.branch.tip:
            done |= {record(PUSHED, row.fork, name): has, record(PUSHING, row.fork, name): None}
            rows.append(row)
        else:
            reason = refused.get(f"refs/heads/{name}") or f"the fork accepted it, but has {(has or 'nothing')[:12]} there"
            rows.append(replace(row, state=PushState.REFUSED, reason=reason))
    repository.set_refs(store, done)
    return tuple(rows)
