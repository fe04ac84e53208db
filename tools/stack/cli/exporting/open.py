# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --open`: open pull requests as drafts, each after a person has confirmed that they have read all of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

from stack.base.errors import StackError
from stack.base.text import counted, printable
from stack.carry import person
from stack.cli.common import one_line, paused, print_json, print_table
from stack.cli.exporting import Work, alike
from stack.cli.exporting.hosts import clients
from stack.forge import repositories
from stack.forge.github import GitHub
from stack.forge.repositories import Pull, Repository
from stack.store import git, pushed_refs
from stack.upstreaming import branches, description, opening
from stack.upstreaming.branches import Branch
from stack.upstreaming.duplicate_search import Search
from stack.upstreaming.linting import Desk
from stack.upstreaming.opening import Head
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.proposal import Proposal

COLOURS = {"opened": "green", "open": "cyan", "refused": "bold red", "not opened": "yellow"}
QUESTION = "Have you read every line of it, description included, and do you answer for it? (yes, show, no)"
_ID = 12


@dataclass(frozen=True, slots=True)
class _Row:
    """The result for a pull request: `opened`, `open` (it was open already), `not opened` (not confirmed) or `refused`."""

    name: str
    state: str
    address: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A pull request, ready to be read and opened."""

    proposal: Proposal
    branch: Branch
    source: Head
    upstream: Repository
    base: str
    title: str
    body: str


def run(work: Work) -> int:
    """Open the pull requests that the person confirms; return 1 if one was refused.

    Raises:
        StackError: there is no terminal, GitHub cannot be asked, or an opened pull request could not be recorded.

    """
    _require_terminal()
    with clients(work) as client:
        chosen = _chosen(work)
        opener = _Opener(work, client, chosen)
        rows = [opener.done(proposal) for proposal in chosen]
    if work.options.as_json:
        keys = ("name", "state", "address", "reason")
        searches = {name: alike.as_json(search) for name, search in opener.searches.items()}
        values = [{key: getattr(row, key) or None for key in keys} | {"search": searches[row.name]} for row in rows]
        print_json({"lane": work.lane, "pulls": values}, "export-pr-open")
    else:
        print_table(
            ("pull request", "state", ""),
            [(row.name, row.state, "; ".join(filter(None, (row.address, one_line(row.reason))))) for row in rows],
            colour=COLOURS.get,
        )
    return int(any(row.state == "refused" for row in rows))


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise StackError(
            "--open asks you to confirm each pull request, but there is no terminal",
            "run it in a terminal; nothing is opened unattended",
        )


def _chosen(work: Work) -> tuple[Proposal, ...]:
    chosen = tuple(proposal for proposal in work.chosen if proposal.wave == 1)
    if not chosen:
        waits = work.chosen[0] if work.chosen else None
        raise StackError(
            f"{waits.name} needs {', '.join(waits.needs)}" if waits else "there is no pull request to open",
            "it can be opened when that is merged upstream" if waits else "see the plan: stack export-pr",
        )
    unreal = next((proposal for proposal in chosen if not proposal.real), None)
    if unreal is not None:
        raise StackError(
            f"{unreal.name} is based on an archive of {unreal.onto}, which is not a commit of {unreal.upstream}",
            f"stack fetch {unreal.upstream} --source git, then the same with --source git",
        )
    return chosen


class _Opener:
    """Opens pull requests one after the other, and keeps what the forge has answered."""

    def __init__(self, work: Work, client: Callable[[str], GitHub], chosen: Sequence[Proposal]) -> None:

        self._work = work
        self._client = client
        stack = work.stores.stack
        self._upstreams = {
            name: repositories.repository(stack.pins.get(name).git) for name in {proposal.upstream for proposal in chosen}
        }
        for upstream in self._upstreams.values():
            client(upstream.host).login()  # fail early: everything else needs a login
        self._preparation: Preparation = Preparation(work.stores, work.plans)
        self._branches = _branches(work, chosen)
        self._bases = {name: client(repository.host).default_branch(repository) for name, repository in self._upstreams.items()}
        self._open = dict.fromkeys(self._upstreams, -1)
        self.searches: dict[str, Search] = alike.searched(work, chosen, client)
        if not work.options.as_json:
            alike.show(self.searches)

    def done(self, proposal: Proposal) -> _Row:
        """Open a pull request unless it is open already, must not be opened, or is not confirmed.

        Raises:
            StackError: an opened pull request could not be recorded.

        """

        root, github = self._work.stores.stack.root, self._client(self._upstreams[proposal.upstream].host)
        try:
            draft = self._draft(proposal)
            opening.check(github, draft.upstream, draft.source)
            existing = opening.existing(github, draft.upstream, draft.source)
            if existing is None:
                reason = self._against(proposal)
                if reason:
                    return _Row(proposal.name, "refused", reason=reason)
                if not self._confirmed(draft):
                    return _Row(proposal.name, "not opened", reason="you did not say yes")
                # Somebody may have pushed while the person was reading.
                opening.check(github, draft.upstream, draft.source)
                made = opening.open_draft(
                    github, draft.upstream, draft.source, base=draft.base, title=draft.title, body=draft.body
                )
        except StackError as refused:
            return _Row(proposal.name, "refused", reason=str(refused))
        pull = existing or made
        if not pull.state.lives:
            return _ended(proposal, pull)
        self._open[proposal.upstream] += existing is None
        click.echo(f"{pull.address} is open", err=True)
        opening.record(root, proposal, pull.address)
        if pull.commit != draft.source.commit:
            return _Row(proposal.name, "refused", pull.address, f"its commit is {pull.commit[:_ID]}, not the one that you read")
        return _Row(proposal.name, "opened" if existing is None else "open", pull.address)

    def _draft(self, proposal: Proposal) -> _Draft:

        branch, upstream = self._branches[proposal.name], self._upstreams[proposal.upstream]
        store = self._work.stores.objects(proposal.upstream).repository
        written = self._preparation.description(proposal)
        if written is None:
            raise StackError(f"{proposal.name} has no description", f"stack export-pr --edit --only {proposal.name}")
        return _Draft(
            proposal,
            branch,
            opening.head(proposal, branch.tip, pushed_refs.everything(store), upstream),
            upstream,
            self._bases[proposal.upstream],
            self._preparation.title(proposal),
            description.body(written),
        )

    def _against(self, proposal: Proposal) -> str:
        """Return the reason why a pull request must not be opened now; empty if there is none."""

        duplicates = self.searches[proposal.name].duplicates
        if duplicates:
            return f"{duplicates[0].address} may do the same ({duplicates[0].score:.2f}): look at it, then --despite it"
        upstream = self._upstreams[proposal.upstream]
        if self._open[proposal.upstream] < 0:
            self._open[proposal.upstream] = opening.open_now(self._client(upstream.host), upstream)
        most = self._preparation.rules(proposal.upstream).most_open
        if most is not None and self._open[proposal.upstream] >= most:
            return f"you have {self._open[proposal.upstream]} open at {upstream.shown}, which allows {most}"
        with Desk(self._work.stores.place.cache, self._work.stores.tell) as desk:
            errors = [finding for finding in self._preparation.findings(proposal, desk) if finding.blocks]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f"{errors[0].rule}: {errors[0].problem}{more} (stack export-pr --lint)" if errors else ""

    def _confirmed(self, draft: _Draft) -> bool:
        """Ask the person for a confirmation, and show the whole pull request on request."""
        to_stderr = self._work.options.as_json
        search = self.searches[draft.proposal.name]
        nearest = f", the nearest {search.found[0].address} ({search.found[0].score:.2f})" if search.found else ""
        for line in (
            "",
            draft.proposal.name,
            f"  title    {one_line(draft.title)}",
            f"  from     {draft.source.label} ({draft.source.commit[:_ID]}, {counted(len(draft.branch.commits), 'commit')})",
            f"  to       {draft.upstream.shown} {draft.base}, as a draft",
            f"  alike    {len(search.found)} open pull requests looked at{nearest}",
        ):
            click.echo(line, err=to_stderr)
        while True:
            with paused():
                answer = click.prompt(QUESTION, default="no", show_default=False, err=to_stderr).strip().lower()
            if answer != "show":
                return answer == "yes"
            with paused():
                click.echo_via_pager(_whole(self._work, draft))


def _ended(proposal: Proposal, pull: Pull) -> _Row:
    reason = (
        "was merged: stack export-pr --status" if pull.merge else "was closed: reopen it there, or give the series its reason"
    )
    return _Row(proposal.name, "refused", pull.address, reason)


def _branches(work: Work, chosen: Sequence[Proposal]) -> Mapping[str, Branch]:
    """Build the branches again, to compare them with those in the fork."""

    who = person.configured(work.stores.stack.root)
    built = {}
    for plan in work.plans:
        own = [proposal for proposal in chosen if proposal.upstream == plan.upstream]
        for branch in branches.build(work.stores.objects(plan.upstream), own, plan.proposals, who):
            built[branch.proposal.name] = branch
    return built


def _whole(work: Work, draft: _Draft) -> str:
    """Return all of a pull request as text, as upstream will see it."""

    store = work.stores.objects(draft.proposal.upstream).repository
    shown = ["log", "--patch", "--reverse", "--no-color", "--format=fuller", f"{draft.branch.base}..{draft.branch.tip}"]
    commits = git.text(shown, env={"GIT_DIR": str(store)})
    return printable(f"{draft.title}\n\n{draft.body}\n\n{commits}\n", kept="\t\n")
