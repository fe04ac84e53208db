# SPDX-License-Identifier: Apache-2.0
"""Opening pull requests, and writing down at once what is open: a run that ends anywhere is simply run again.

What is open is asked of the forge, by the branch that it comes from, before anything is opened: no pull request is opened twice.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stack.base.errors import StackError
from stack.model import series as model
from stack.model import stack as stacks
from stack.model import switch
from stack.model.ids import CommitId
from stack.model.series import Pulled, Series, State
from stack.upstreaming import forge
from stack.upstreaming.forge import Pull, Repository
from stack.upstreaming.github import INVALID, DroppedError, GitHub, RefusedError
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.pushed_refs import Pushed

_LOOKS = 3
_PAUSE = 2.0
"""Seconds between two looks at what became of a request: GitHub shows a new pull request at once, mostly."""


@dataclass(frozen=True, slots=True)
class Head:
    """Where a pull request comes from: a branch of the user's fork, at `commit`."""

    repository: Repository
    branch: str
    commit: CommitId

    @property
    def label(self) -> str:
        """How GitHub calls it."""
        return f"{self.repository.owner}:{self.branch}"


def head(proposal: Proposal, commit: CommitId, pushed: Sequence[Pushed], upstream: Repository) -> Head:
    """Where a proposal's branch was pushed to.

    Of the address only owner and name count: git may reach the upstream's host by another name (an alias of ssh's configuration,
    `url.<base>.insteadOf`). `check` finds out whether it is what it should be.

    Raises:
        StackError: nowhere, or not as it is now, or to several forks, or to none of a forge.

    """
    again = f"stack export-pr --push REMOTE --only {proposal.name}"
    places = [one for one in pushed if one.branch == proposal.branch]
    if not places:
        raise StackError(f"{proposal.branch} is in no fork", again)
    current = [one for one in places if one.commit == commit]
    if not current:
        raise StackError(f"{places[0].fork} has another version of {proposal.branch}", again)
    if len(current) > 1:
        raise StackError(
            f"{' and '.join(one.fork for one in current)} have {proposal.branch}", "delete it in one of them, and push again"
        )
    return Head(replace(forge.repository(current[0].fork), host=upstream.host), proposal.branch, commit)


def check(github: GitHub, upstream: Repository, source: Head) -> None:
    """Refuse a fork that is none of the upstream's, or that has another commit by now.

    Raises:
        StackError: it is so, or GitHub cannot be asked.

    """
    found = github.fork(source.repository)
    if upstream.shown.lower() not in (found.repository.shown.lower(), (found.upstream or "").lower()):
        raise StackError(f"{found.repository.shown} is no fork of {upstream.shown}", f"fork {upstream.shown}, and push there")
    there = github.tip(source.repository, source.branch)
    if there != source.commit:
        what = "no" if there is None else f"{there[:12]}, not {source.commit[:12]}, as"
        raise StackError(f"{found.repository.shown} has {what} branch {source.branch}", "stack export-pr --push REMOTE")


def existing(github: GitHub, upstream: Repository, source: Head) -> Pull | None:
    """The pull request that comes from a branch already: one that lives, else the last one.

    Raises:
        StackError: GitHub cannot be asked.

    """
    found = github.pulls_from(upstream, source.label)
    return next((one for one in found if one.state.lives), found[0] if found else None)


def open_now(github: GitHub, upstream: Repository) -> int:
    """How many pull requests the user has open there, ours and others.

    Raises:
        StackError: GitHub cannot be asked.

    """
    return github.search(f"repo:{upstream.shown} is:pr is:open author:{github.login()}", 1)[1]


def open_draft(github: GitHub, upstream: Repository, source: Head, *, base: str, title: str, body: str) -> Pull:
    """Open a draft; where the answer is lost, look whether it is open.

    Raises:
        StackError: nothing was opened.

    """
    try:
        return github.open_draft(upstream, head=source.label, base=base, title=title, body=body)
    except DroppedError as dropped:
        found = _opened(github, upstream, source)
        if found is None:
            raise StackError(dropped.problem, "nothing was opened: run the command again") from dropped
        return found
    except RefusedError as refused:
        # Somebody was faster, or the answer of an earlier run was lost.
        found = existing(github, upstream, source) if refused.status == INVALID else None
        if found is None or not found.state.lives:
            raise
        return found


def _opened(github: GitHub, upstream: Repository, source: Head) -> Pull | None:
    """What a request that nobody answered has brought."""
    for look in range(_LOOKS):
        if look:
            time.sleep(_PAUSE)
        found = existing(github, upstream, source)
        if found is not None and found.state.lives:
            return found
    return None


def record(root: Path, proposal: Proposal, address: str) -> None:
    """Write a pull request into the series' file: at the patches that it takes upstream, the series being submitted.

    A patch of which it takes a part keeps the pull requests of the others.

    Raises:
        StackError: it cannot be written; the address, which must not be lost, is in the message.

    """
    path = f"{stacks.FOLDER}/{proposal.series}/{model.FILE}"
    try:
        before = (root / path).read_bytes()
        pulls = _pulls(model.load((root / path).parent), proposal, address)
        after = model.with_pulls(before.decode("utf-8"), pulls, State.SUBMITTED).encode("utf-8")
        switch.apply(root, {path: after}, title=f"export-pr --open {proposal.name}", expected={path: before})
    except (StackError, OSError, UnicodeDecodeError) as failed:
        raise StackError(
            f"{address} is open, and could not be written into {path} ({failed})", "mend that, then run the command again"
        ) from failed


def _pulls(known: Series, proposal: Proposal, address: str) -> tuple[Pulled, ...]:
    """The pull requests of a proposal's patches, with the new one."""
    refs = {ref.path: ref for ref in known.patches}
    pulls: dict[Pulled, None] = {}
    for part in proposal.parts:
        if part.path not in refs:
            raise StackError(f"{part.path} has left the stack")
        if part.cut:
            pulls |= dict.fromkeys(one for one in known.pulls if one.ref == refs[part.path])
        pulls[Pulled(refs[part.path], address)] = None
    return tuple(pulls)
