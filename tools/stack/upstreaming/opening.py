# SPDX-License-Identifier: Apache-2.0
"""Open pull requests and record each at once, so that an interrupted run can simply be repeated.

Before opening a pull request, the forge is asked for pull requests from the same branch: none is opened twice.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.forge import repositories
from stack.forge.github import INVALID, DroppedError, GitHub, RefusedError
from stack.forge.repositories import Pull, Repository
from stack.model import lanes, switch
from stack.model import series as model
from stack.model import stack as stacks
from stack.model.ids import CommitId
from stack.model.series import Pulled, Series, State
from stack.store.pushed_refs import Pushed
from stack.upstreaming.proposal import Proposal

_LOOKS = 3
_PAUSE = 2.0
"""Seconds between two checks for a pull request whose request got no answer; GitHub usually shows it at once."""


@dataclass(frozen=True, slots=True)
class Head:
    """The source of a pull request: a branch of the user's fork, at `commit`."""

    repository: Repository
    branch: str
    commit: CommitId

    @property
    def label(self) -> str:
        """The name that GitHub uses for it: `owner:branch`."""
        return f"{self.repository.owner}:{self.branch}"


def head(proposal: Proposal, commit: CommitId, pushed: Sequence[Pushed], upstream: Repository) -> Head:
    """Find the fork that a proposal's branch was pushed to.

    Only owner and name are taken from the fork's address: git may reach the host by another name (an alias in ssh's
    configuration, `url.<base>.insteadOf`). `check` verifies the result.

    Raises:
        StackError: the branch was not pushed, has changed since, is in several forks, or the fork is not on a forge.

    """
    again = f"stack export-pr --push REMOTE --only {proposal.name}"
    places = [ref for ref in pushed if ref.branch == proposal.branch]
    if not places:
        raise StackError(f"{proposal.branch} is in no fork", again)
    current = [ref for ref in places if ref.commit == commit]
    if not current:
        raise StackError(f"{places[0].fork} has another version of {proposal.branch}", again)
    if len(current) > 1:
        raise StackError(
            f"{' and '.join(ref.fork for ref in current)} have {proposal.branch}", "delete it in one of them, and push again"
        )
    return Head(replace(repositories.repository(current[0].fork), host=upstream.host), proposal.branch, commit)


def check(github: GitHub, upstream: Repository, source: Head) -> None:
    """Refuse a repository that is not a fork of the upstream, or whose branch has another commit by now.

    Raises:
        StackError: one of these is so, or GitHub cannot be asked.

    """
    fork = github.fork(source.repository)
    if upstream.shown.lower() not in (fork.repository.shown.lower(), (fork.upstream or "").lower()):
        raise StackError(f"{fork.repository.shown} is not a fork of {upstream.shown}", f"fork {upstream.shown}, and push there")
    tip = github.tip(source.repository, source.branch)
    if tip != source.commit:
        what = "no" if tip is None else f"{tip[:12]}, not {source.commit[:12]}, as"
        raise StackError(f"{fork.repository.shown} has {what} branch {source.branch}", "stack export-pr --push REMOTE")


def existing(github: GitHub, upstream: Repository, source: Head) -> Pull | None:
    """Find the pull request that was opened from a branch already: an open one, else the latest.

    Raises:
        StackError: GitHub cannot be asked.

    """
    pulls = github.pulls_from(upstream, source.label)
    return next((pull for pull in pulls if pull.state.lives), pulls[0] if pulls else None)


def open_now(github: GitHub, upstream: Repository) -> int:
    """Count the pull requests that the user has open at the upstream, including those not made by this stack.

    Raises:
        StackError: GitHub cannot be asked.

    """
    return github.search(f"repo:{upstream.shown} is:pr is:open author:{github.login()}", 1)[1]


def open_draft(github: GitHub, upstream: Repository, source: Head, *, base: str, title: str, body: str) -> Pull:
    """Open a draft; if the answer is lost, look whether the draft was opened.

    Raises:
        StackError: nothing was opened.

    """
    try:
        return github.open_draft(upstream, head=source.label, base=base, title=title, body=body)
    except DroppedError as dropped:
        pull = _opened(github, upstream, source)
        if pull is None:
            raise StackError(dropped.problem, "nothing was opened: run the command again") from dropped
        return pull
    except RefusedError as refused:
        # Another process was faster, or the answer to an earlier run was lost.
        pull = existing(github, upstream, source) if refused.status == INVALID else None
        if pull is None or not pull.state.lives:
            raise
        return pull


def _opened(github: GitHub, upstream: Repository, source: Head) -> Pull | None:
    """Look for the pull request of a request that got no answer."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE)
        pull = existing(github, upstream, source)
        if pull is not None and pull.state.lives:
            return pull
    return None


def record(root: Path, proposal: Proposal, address: str) -> None:
    """Record a pull request's address in `series.toml`, at the patches that it takes upstream, and set the state to submitted.

    A patch that was cut keeps the addresses of its other parts' pull requests. A lane's pull request is recorded in the lane only.

    Raises:
        StackError: the file cannot be written; the message contains the address, which must not be lost.

    """
    path = f"{stacks.FOLDER}/{proposal.series}/{model.FILE}"
    try:
        title = f"export-pr --open {proposal.name}"
        if proposal.lane is not None:
            carried = stacks.load(root, proposal.lane)
            seen = lanes.text(carried, path)
            after = model.with_pulls(seen, _pulls(carried.get(proposal.series), proposal, address), State.SUBMITTED)
            lanes.apply(carried, {path: after.encode()}, title=title, expected={path: seen.encode()})
            return
        before = (root / path).read_bytes()
        pulls = _pulls(model.load((root / path).parent), proposal, address)
        after = model.with_pulls(before.decode("utf-8"), pulls, State.SUBMITTED)
        switch.apply(root, {path: after.encode()}, title=title, expected={path: before})
    except (StackError, OSError, UnicodeDecodeError) as failed:
        raise StackError(
            f"{address} is open, but could not be written into {path} ({failed})", "mend that, then run the command again"
        ) from failed


def _pulls(known: Series, proposal: Proposal, address: str) -> tuple[Pulled, ...]:
    """Return the addresses for a proposal's patches, with the new one."""
    refs = {ref.path: ref for ref in known.patches}
    pulls: dict[Pulled, None] = {}
    for part in proposal.parts:
        if part.path not in refs:
            raise StackError(f"{part.path} has left the stack")
        if part.cut:
            pulls |= dict.fromkeys(pulled for pulled in known.pulls if pulled.ref == refs[part.path])
        pulls[Pulled(refs[part.path], address)] = None
    return tuple(pulls)
