# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --open`: pull requests as drafts, each after a person has said that they have read all of it."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

from stack.base.errors import StackError
from stack.base.text import printable
from stack.cli.common import one_line, paused, print_json, print_table
from stack.cli.exporting import Work, alike
from stack.cli.exporting.hosts import clients
from stack.store import git
from stack.upstreaming import branches, description, forge, opening, person, pushed_refs
from stack.upstreaming.branches import Branch
from stack.upstreaming.duplicate_search import Search
from stack.upstreaming.forge import Pull, Repository
from stack.upstreaming.github import GitHub
from stack.upstreaming.linting import Desk
from stack.upstreaming.opening import Head
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.proposal import Proposal

COLOURS = {"opened": "green", "open": "cyan", "refused": "bold red", "not opened": "yellow"}
QUESTION = "Have you read every line of it, description included, and do you answer for it? (yes, show, no)"
_ID = 12


@dataclass(frozen=True, slots=True)
class _Row:
    """What became of a pull request: `opened`, `open` (it was before), `not opened` (the person said no) or `refused`."""

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
    """Open what the person confirms; 1 where one was refused.

    Raises:
        StackError: there is no terminal to ask on, GitHub cannot be asked, or what was opened could not be written down.

    """
    _require_terminal()
    with clients(work) as client:
        chosen = _chosen(work)
        opener = _Opener(work, client, chosen)
        rows = [opener.done(one) for one in chosen]
    if work.asked.as_json:
        keys = ("name", "state", "address", "reason")
        searches = {name: alike.as_json(one) for name, one in opener.searches.items()}
        values = [{key: getattr(row, key) or None for key in keys} | {"search": searches[row.name]} for row in rows]
        print_json({"pulls": values})
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
            "--open asks for every pull request whether you have read it, and there is no terminal to ask on",
            "run it on one; nothing is opened unattended",
        )


def _chosen(work: Work) -> tuple[Proposal, ...]:
    chosen = tuple(one for one in work.chosen if one.wave == 1)
    if not chosen:
        waits = work.chosen[0] if work.chosen else None
        raise StackError(
            f"{waits.name} needs {', '.join(waits.needs)}" if waits else "there is no pull request to open",
            "it can be opened when that is upstream" if waits else "see the plan: stack export-pr",
        )
    unreal = next((one for one in chosen if not one.real), None)
    if unreal is not None:
        raise StackError(
            f"{unreal.name} stands on {unreal.onto} as an archive has it, which is no commit of {unreal.upstream}",
            f"stack fetch {unreal.upstream} --source git, then the same with --source git",
        )
    return chosen


class _Opener:
    """Opens pull requests one after the other; what is asked once is kept."""

    def __init__(self, work: Work, client: Callable[[str], GitHub], chosen: Sequence[Proposal]) -> None:

        self._work = work
        self._client = client
        stack = work.stores.stack
        self._upstreams = {name: forge.repository(stack.pins.get(name).git) for name in {one.upstream for one in chosen}}
        for upstream in self._upstreams.values():
            client(upstream.host).login()  # nothing else is worth asking without
        self._preparation: Preparation = Preparation(work.stores, work.plans)
        self._branches = _branches(work, chosen)
        self._bases = {name: client(one.host).default_branch(one) for name, one in self._upstreams.items()}
        self._open = dict.fromkeys(self._upstreams, -1)
        self.searches: dict[str, Search] = alike.searched(work, chosen, client)
        if not work.asked.as_json:
            alike.show(self.searches)

    def done(self, proposal: Proposal) -> _Row:
        """Open a pull request, unless it is open, something is against it, or the person does not want it.

        Raises:
            StackError: what was opened could not be written down.

        """

        root, github = self._work.stores.stack.root, self._client(self._upstreams[proposal.upstream].host)
        try:
            draft = self._draft(proposal)
            opening.check(github, draft.upstream, draft.source)
            there = opening.existing(github, draft.upstream, draft.source)
            if there is None:
                reason = self._against(proposal)
                if reason:
                    return _Row(proposal.name, "refused", reason=reason)
                if not self._confirmed(draft):
                    return _Row(proposal.name, "not opened", reason="you did not say yes")
                # Somebody may have pushed while it was read.
                opening.check(github, draft.upstream, draft.source)
                made = opening.open_draft(
                    github, draft.upstream, draft.source, base=draft.base, title=draft.title, body=draft.body
                )
        except StackError as refused:
            return _Row(proposal.name, "refused", reason=str(refused))
        pull = there or made
        if not pull.state.lives:
            return _ended(proposal, pull)
        self._open[proposal.upstream] += there is None
        click.echo(f"{pull.address} is open", err=True)
        opening.record(root, proposal, pull.address)
        if pull.commit != draft.source.commit:
            return _Row(proposal.name, "refused", pull.address, f"its commit is {pull.commit[:_ID]}, not what you read")
        return _Row(proposal.name, "opened" if there is None else "open", pull.address)

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
        """Why it must not be opened now; empty where nothing is against it."""

        duplicates = self.searches[proposal.name].duplicates
        if duplicates:
            return f"{duplicates[0].address} may do the same ({duplicates[0].score:.2f}): look at it, then --despite it"
        upstream = self._upstreams[proposal.upstream]
        if self._open[proposal.upstream] < 0:
            self._open[proposal.upstream] = opening.open_now(self._client(upstream.host), upstream)
        most = self._preparation.rules(proposal.upstream).most_open
        if most is not None and self._open[proposal.upstream] >= most:
            return f"you have {self._open[proposal.upstream]} open at {upstream.shown}, which lets you have {most}"
        with Desk(self._work.stores.place.cache, self._work.stores.tell) as desk:
            errors = [one for one in self._preparation.findings(proposal, desk) if one.blocks]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        return f"{errors[0].rule}: {errors[0].problem}{more} (stack export-pr --lint)" if errors else ""

    def _confirmed(self, draft: _Draft) -> bool:
        """Ask the person, who can read it first."""
        aside = self._work.asked.as_json
        search = self.searches[draft.proposal.name]
        nearest = f", the nearest {search.found[0].address} ({search.found[0].score:.2f})" if search.found else ""
        for line in (
            "",
            draft.proposal.name,
            f"  title    {one_line(draft.title)}",
            f"  from     {draft.source.label} ({draft.source.commit[:_ID]}, {len(draft.branch.commits)} commits)",
            f"  to       {draft.upstream.shown} {draft.base}, as a draft",
            f"  alike    {len(search.found)} open pull requests looked at{nearest}",
        ):
            click.echo(line, err=aside)
        while True:
            with paused():
                said = click.prompt(QUESTION, default="no", show_default=False, err=aside).strip().lower()
            if said != "show":
                return said == "yes"
            with paused():
                click.echo_via_pager(_whole(self._work, draft))


def _ended(proposal: Proposal, pull: Pull) -> _Row:
    what = (
        "was merged: stack export-pr --status" if pull.merge else "was closed: reopen it there, or give the series its reason"
    )
    return _Row(proposal.name, "refused", pull.address, what)


def _branches(work: Work, chosen: Sequence[Proposal]) -> Mapping[str, Branch]:
    """The branches as they are made now: what stands in the fork has to be the same."""

    who = person.configured(work.stores.stack.root)
    found = {}
    for plan in work.plans:
        own = [one for one in chosen if one.upstream == plan.upstream]
        for branch in branches.build(work.stores.objects(plan.upstream), own, plan.proposals, who):
            found[branch.proposal.name] = branch
    return found


def _whole(work: Work, draft: _Draft) -> str:
    """All of a pull request, as upstream will see it."""

    store = work.stores.objects(draft.proposal.upstream).repository
    shown = ["log", "--patch", "--reverse", "--no-color", "--format=fuller", f"{draft.branch.base}..{draft.branch.tip}"]
    commits = git.text(shown, env={"GIT_DIR": str(store)})
    return printable(f"{draft.title}\n\n{draft.body}\n\n{commits}\n", kept="\t\n")
