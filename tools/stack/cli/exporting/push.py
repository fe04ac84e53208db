# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --push`: push the branches of pull requests to the user's forks."""

from collections.abc import Sequence

import click

from stack.base.errors import StackError
from stack.cli.common import one_line, print_json, print_table
from stack.cli.exporting import Work, alike
from stack.cli.exporting.hosts import clients
from stack.store import fork
from stack.upstreaming import pushing
from stack.upstreaming.duplicate_search import Search
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.pushing import PushRow

COLOURS = {"new": "green", "updated": "cyan", "refused": "bold red"}
_ID = 12


def run(work: Work) -> int:
    """Push the branches of the first wave, or those that `--only` selects; return 1 if one was refused."""

    stack, chosen = work.stores.stack, _chosen(work)
    upstreams = tuple(dict.fromkeys(proposal.upstream for proposal in chosen))
    store = work.stores.objects(upstreams[0]).repository
    to = fork.named(work.options.push, stack.pins, upstreams, stack.root, store)
    searches = _searched(
        work, [proposal for proposal in chosen if proposal.real and proposal.upstream in to and not to[proposal.upstream].local]
    )
    if any(search.duplicates for search in searches.values()):
        if work.options.as_json:
            found = {name: alike.as_json(search) for name, search in searches.items()}
            print_json({"lane": work.lane, "branches": [], "searches": found}, "export-pr-push")
        else:
            alike.show(searches)
            click.echo("nothing was pushed")
        return 1
    rows = pushing.push(work.stores, work.plans, chosen, to, work.options.over)
    if work.options.as_json:
        json_searches = {name: alike.as_json(search) for name, search in searches.items()}
        branches = [_as_json(row) for row in rows]
        print_json({"lane": work.lane, "branches": branches, "searches": json_searches}, "export-pr-push")
    else:
        _print(rows)
    return int(any(row.state is pushing.PushState.REFUSED for row in rows))


def _searched(work: Work, chosen: Sequence[Proposal]) -> dict[str, Search]:
    """Search for duplicates of proposals that other people will see; a fork on this machine is private."""
    if not chosen:
        return {}
    with clients(work) as client:
        return alike.searched(work, chosen, client)


def _chosen(work: Work) -> tuple[Proposal, ...]:
    named = bool(work.options.only)
    chosen = tuple(proposal for proposal in work.chosen if named or proposal.wave == 1)
    if not chosen:
        raise StackError("there is no pull request to push", "see the plan: stack export-pr")
    return chosen


def _print(rows: tuple[PushRow, ...]) -> None:
    lines = []
    for row in rows:
        lines.append((row.branch.name, row.state.value, row.branch.tip[:_ID], "; ".join(_notes(row))))
        lines += [("", "", "", one_line(line)) for line in row.differs]
    print_table(("branch", "state", "commit", ""), lines, colour=COLOURS.get)
    for name in dict.fromkeys(str(row.fork) for row in rows):
        click.echo(f"{', '.join(dict.fromkeys(row.fork.upstream for row in rows if str(row.fork) == name))}: {name}")


def _notes(row: PushRow) -> list[str]:
    notes = [row.reason] if row.reason else []
    if row.tag is not None and not row.reason.startswith("not pushed"):
        notes.append(f"was {row.before[:_ID] if row.before else ''}, kept as {row.tag.removeprefix('refs/tags/')}")
    if row.behind:
        notes.append(f"{row.behind} commit{'s' if row.behind > 1 else ''} behind upstream")
    return notes


def _as_json(row: PushRow) -> dict[str, object]:
    return {
        "branch": row.branch.name,
        "upstream": row.branch.proposal.upstream,
        "wave": row.branch.proposal.wave,
        "fork": str(row.fork),
        "state": row.state.value,
        "base": row.branch.base,
        "commits": list(row.branch.commits),
        "behind": row.behind,
        "before": row.before,
        "tag": row.tag.removeprefix("refs/tags/") if row.tag else None,
        "range_diff": str(row.changes) if row.changes else None,
        "reason": row.reason or None,
        "differs": list(row.differs),
    }
