# SPDX-License-Identifier: Apache-2.0
"""Bringing the branches of pull requests to forks, where nothing is lost: not our earlier versions, not what others changed there.

All branches of all forks are made and compared first; then each fork gets its own in one push. What is on its way is written down
before it leaves and what arrived after it was seen there, so that a run that dies at any moment is simply run again.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from stack.base.errors import StackError
from stack.base.text import printable
from stack.carry.upstream_stores import Stores
from stack.model.ids import CommitId
from stack.store import cache, git, remote, repository
from stack.store.remote import ungrafted
from stack.upstreaming import fork as forks
from stack.upstreaming import versions
from stack.upstreaming.branches import Branch, build
from stack.upstreaming.fork import Fork, Move
from stack.upstreaming.person import Person, configured
from stack.upstreaming.proposal import Plan, Proposal
from stack.upstreaming.pushed_refs import PUSHED, PUSHING, record, refs

_DIGITS = 7
"""Digits of a commit's id that are enough to mean it."""
_SHOWN = 20
"""Commits of somebody else that are shown."""


class State(Enum):
    """What became of a branch in a fork."""

    NEW = "new"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Row:
    """A branch and its fork.

    `before`: the version of ours that stood there, kept as `tag`, with what changed in the file `changes`. `behind`: the commits
    that the upstream's default branch has more, None where the base is no commit of the upstream. `differs`: what the fork has that
    is not ours (`>`), and what it lacks of ours (`<`).
    """

    branch: Branch
    fork: Fork
    state: State
    behind: int | None
    before: CommitId | None = None
    tag: str | None = None
    changes: Path | None = None
    reason: str = ""
    differs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The branches of one fork, ready to go."""

    store: Path
    fork: Fork
    rows: tuple[Row, ...]


def push(
    stores: Stores, plans: Sequence[Plan], chosen: Sequence[Proposal], to: Mapping[str, Fork], over: Sequence[str] = ()
) -> tuple[Row, ...]:
    """Make the branches of the chosen proposals and push them, each upstream's to its fork; others are left out.

    Args:
        stores: the stack's stores.
        plans: the plan of each upstream.
        chosen: what to push of them.
        to: the fork of each upstream.
        over: commits, at least seven digits of each, that are replaced where a fork has them, though they were not pushed from here.

    Raises:
        StackError: nothing was pushed, since something of it cannot be; or a connection failed on the way. Then the next run finds
            out what arrived.

    """
    person = configured(stores.stack.root)
    planned = {plan.upstream: plan for plan in plans}
    wanted = {upstream: [one for one in chosen if one.upstream == upstream] for upstream in to}
    for one in (one for proposals in wanted.values() for one in proposals):
        _require_real(one, to[one.upstream])
    with _locked(stores, to) as held:
        making = _Making(stores, person, over)
        prepared = [making.prepare(planned[upstream], wanted[upstream], fork) for upstream, fork in to.items()]
        making.require_used()
        return tuple(row for one in prepared for row in _sent(stores, one, held))


def _require_real(proposal: Proposal, fork: Fork) -> None:
    if not proposal.real and not fork.local:
        raise StackError(
            f"{proposal.name} stands on {proposal.onto} as an archive has it, which is no commit of {proposal.upstream}",
            f"stack fetch {proposal.upstream} --source git, then the same with --source git",
        )


@contextlib.contextmanager
def _locked(stores: Stores, upstreams: Mapping[str, Fork]) -> Iterator[Sequence[int]]:
    """Hold the stores, always in the same order, and clear away what killed processes left there."""
    with contextlib.ExitStack() as locks:
        held = []
        for store in sorted({stores.objects(upstream).repository for upstream in upstreams}):
            held.append(locks.enter_context(cache.lock(store, lambda: stores.tell("waiting for another process"))))
            repository.sweep(store)
        yield held


class _Making:
    """Makes branches in the stores, and compares them with what the forks have."""

    def __init__(self, stores: Stores, person: Person, over: Sequence[str]) -> None:
        self._stores = stores
        self._person = person
        self._over = dict.fromkeys(over, False)

    def prepare(self, plan: Plan, chosen: Sequence[Proposal], fork: Fork) -> _Prepared:
        self._stores.tell(f"preparing the branches of {plan.upstream}")
        objects = self._stores.objects(plan.upstream)
        store = objects.repository
        behind = self._behind(store, {ungrafted(objects, one.base): one for one in chosen}, fork)
        branches = build(objects, chosen, plan.proposals, self._person)
        objects.flush()
        there = forks.look(store, fork, [branch.name for branch in branches])
        self._absorb(store, fork, branches, there)
        known = refs(store, PUSHED)
        rows = [_compared(store, branch, fork, there, known.get(record(PUSHED, fork, branch.name))) for branch in branches]
        rows = [replace(row, behind=behind[row.branch.base]) for row in rows]
        return _Prepared(store, fork, tuple(_versioned(self._stores.stack.root, store, row, there) for row in rows))

    def require_used(self) -> None:
        """Refuse to go on where what shall be replaced is not what any fork has."""
        for commit in (one for one, used in self._over.items() if not used):
            raise StackError(f"--over {commit} is the tip of no branch that is pushed to", "see what is there: run it without")

    def _behind(self, store: Path, bases: Mapping[CommitId, Proposal], fork: Fork) -> Mapping[CommitId, int | None]:
        """How far upstream is ahead of each base; refuses bases that upstream or the fork does not have."""
        found: dict[CommitId, int | None] = dict.fromkeys(bases)
        for base, proposal in bases.items():
            if not proposal.real:
                continue
            if not remote.is_own(store, base):
                raise StackError(
                    f"{proposal.onto} ({base[:12]}) is not in the history of {proposal.upstream}",
                    f"stack fetch {proposal.upstream} --source git",
                )
            found[base] = remote.behind(store, self._stores.stack.pins.get(proposal.upstream).git, base)
            if not forks.has(store, fork, base):
                raise StackError(
                    f"{fork} does not have {proposal.onto} ({base[:12]}) of {proposal.upstream}",
                    "bring the fork up to date first (its forge has a button, `gh repo sync`), or check that it is one of this upstream",
                )
        return found

    def _absorb(self, store: Path, fork: Fork, branches: Sequence[Branch], there: Mapping[str, CommitId]) -> None:
        """Count as ours what a run that died had sent, where it arrived, and what shall be replaced."""
        sent = refs(store, PUSHING)
        found = {}
        for branch in branches:
            now = there.get(f"refs/heads/{branch.name}")
            if now is not None and (
                now in (branch.tip, sent.get(record(PUSHING, fork, branch.name))) or self._replaces(store, fork, now)
            ):
                found[record(PUSHED, fork, branch.name)] = now
        repository.set_refs(store, found)

    def _replaces(self, store: Path, fork: Fork, commit: CommitId) -> bool:
        named = [one for one in self._over if len(one) >= _DIGITS and commit.startswith(one.lower())]
        if not named:
            return False
        self._over |= dict.fromkeys(named, True)
        with _brought(store, fork, commit, contents=True) as place:
            repository.adopt(store, place / "objects/pack", {})
        return True


def _compared(store: Path, branch: Branch, fork: Fork, there: Mapping[str, CommitId], pushed: CommitId | None) -> Row:
    now = there.get(f"refs/heads/{branch.name}")
    before = pushed if pushed != branch.tip else None
    if now == branch.tip:
        return Row(branch, fork, State.UNCHANGED, None)
    if now is None:
        gone = "it had been deleted there" if pushed is not None else ""
        return Row(branch, fork, State.NEW, None, before, reason=gone)
    if now == pushed:
        return Row(branch, fork, State.UPDATED, None, before)
    why = "somebody changed it there" if pushed is not None else "the fork has such a branch that was not pushed from here"
    reason = f"{why}: --over {now[:12]} replaces that, and keeps it under a tag"
    return Row(branch, fork, State.REFUSED, None, reason=reason, differs=_differences(store, fork, branch, pushed, now))


def _differences(store: Path, fork: Fork, branch: Branch, pushed: CommitId | None, now: CommitId) -> tuple[str, ...]:
    """The commits that only one of both has: the fork, or what was pushed last. Somebody's commits do not come into the store."""
    show = ["log", "--left-right", "--format=%m %h %an: %s", f"{pushed or branch.tip}...{now}"]
    with _brought(store, fork, now, contents=False) as place:
        said = git.text([*show, "--not", branch.base, *_upstream(store)], env={"GIT_DIR": str(place)})
    lines = [printable(line) for line in said.splitlines()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *more)


@contextlib.contextmanager
def _brought(store: Path, fork: Fork, commit: CommitId, *, contents: bool) -> Iterator[Path]:
    """A throw-away repository with a commit of the fork, which sees what the store has, and what that gets from upstream."""
    with repository.incoming(store, borrowing=True) as place:
        if remote.address(store):
            remote.register(place, remote.address(store))
        forks.bring(place, fork, commit, contents=contents)
        yield place


def _upstream(store: Path) -> Sequence[str]:
    return sorted({commit for ref in remote.OWN for commit in refs(store, ref).values()})


def _versioned(root: Path, store: Path, row: Row, there: Mapping[str, CommitId]) -> Row:
    """The branch in the store, its earlier version under a tag, and what changed since beside its description."""
    if row.state is State.REFUSED:
        return row
    name = row.branch.name
    sent = row.branch.tip if row.state is not State.UNCHANGED else None
    moves: dict[str, str | None] = {f"refs/heads/{name}": row.branch.tip, record(PUSHING, row.fork, name): sent}
    if row.before is not None:
        tag = versions.tag(name, row.before, (*refs(store, f"refs/tags/{name}").items(), *there.items()))
        moves[tag] = row.before
        text = versions.changes(store, row.before, row.branch)
        row = replace(row, tag=tag, changes=versions.keep(root, row.branch.proposal, text))
    repository.set_refs(store, moves)
    return row


def _sent(stores: Stores, prepared: _Prepared, held: Sequence[int]) -> tuple[Row, ...]:
    """The rows after the push, with what the fork says that it has then."""
    going = [row for row in prepared.rows if row.state in (State.NEW, State.UPDATED)]
    if not going:
        return prepared.rows
    stores.tell(f"pushing {len(going)} branches to {prepared.fork}")
    store, fork = prepared.store, prepared.fork
    names = [row.branch.name for row in going]
    try:
        refused = forks.push(store, fork, [move for row in going for move in _moves(row)], held)
    except StackError:
        # It may have arrived all the same, and only the answer was lost.
        with contextlib.suppress(StackError):
            there = forks.look(store, fork, names)
            if all(there.get(f"refs/heads/{row.branch.name}") == row.branch.tip for row in going):
                return _recorded(store, prepared, there, {})
        raise
    return _recorded(store, prepared, forks.look(store, fork, names), refused)


def _moves(row: Row) -> Iterator[Move]:
    if row.tag is not None and row.before is not None:
        yield Move(row.tag, row.before)
    yield Move(f"refs/heads/{row.branch.name}", row.branch.tip, row.before if row.state is State.UPDATED else None)


def _recorded(store: Path, prepared: _Prepared, there: Mapping[str, CommitId], refused: Mapping[str, str]) -> tuple[Row, ...]:
    """Write down what the fork has now; what it was said to take and has not is refused, too."""
    done: dict[str, str | None] = {}
    rows = []
    for row in prepared.rows:
        name = row.branch.name
        has = there.get(f"refs/heads/{name}")
        if row.state not in (State.NEW, State.UPDATED):
            rows.append(row)
        elif has == row.branch.tip:
            done |= {record(PUSHED, row.fork, name): has, record(PUSHING, row.fork, name): None}
            rows.append(row)
        else:
            reason = refused.get(f"refs/heads/{name}") or f"the fork took it, and has {(has or 'nothing')[:12]} there"
            rows.append(replace(row, state=State.REFUSED, reason=reason))
    repository.set_refs(store, done)
    return tuple(rows)
