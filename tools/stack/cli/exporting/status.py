# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --status`: what became of our pull requests; it is kept in series.toml."""

from collections.abc import Sequence

import click

from stack.cli.common import one_line, print_json, print_table
from stack.cli.exporting import Work
from stack.cli.exporting.hosts import clients
from stack.upstreaming import following
from stack.upstreaming.following import Followed

COLOURS = {"open": "green", "draft": "cyan", "merged": "magenta", "closed": "bold red", "?": "bold red"}
_ID = 12


def run(work: Work) -> int:
    """Ask for every pull request that series.toml names; 1 where one needs a person."""

    stack, asked = work.stores.stack, work.asked
    with clients(work) as client:
        found = tuple(following.follow(work.stores, asked.series, asked.upstream, client))
    changed = following.states(stack, found)
    if changed:
        following.record(stack, changed)
    if asked.as_json:
        print_json({"pulls": [_as_json(one) for one in found], "states": {name: str(state) for name, state in changed.items()}})
    else:
        _print(found)
        for name, state in changed.items():
            click.echo(f"{name} is {state} now: stacks/{name}/series.toml says so")
    return int(any(one.needs_person for one in found))


def _print(found: Sequence[Followed]) -> None:
    if not found:
        click.echo("no series.toml names a pull request: `stack export-pr --open` writes them there")
        return
    rows = [row for one in found for row in _rows(one)]
    print_table(("pull request", "state", "reviews", "checks", "behind", "patches"), rows, colour=COLOURS.get)
    for one in found:
        for line in _proposed(one):
            click.echo(line)


def _rows(one: Followed) -> list[tuple[str, ...]]:
    paths = [ref.path.removesuffix(".patch") for ref in one.refs]
    first, *rest = paths or [one.series]
    if one.pull is None:
        head = (one.address, "?", "", "", "", first)
        return [head, *_blank(rest), ("", "", one.problem, "", "", "")]
    head = (
        one.address,
        one.pull.state.value,
        "; ".join(_reviews(one)),
        "; ".join(_checks(one)),
        "" if one.behind is None else str(one.behind),
        first,
    )
    return [head, *_blank(rest)]


def _blank(paths: Sequence[str]) -> list[tuple[str, ...]]:
    return [("", "", "", "", "", path) for path in paths]


def _reviews(one: Followed) -> list[str]:
    said = [("approved by", one.reviews.approved), ("changes asked for by", one.reviews.changes)]
    return [f"{words} {one_line(', '.join(who))}" for words, who in said if who]


def _checks(one: Followed) -> list[str]:
    checks = one.checks
    said = [f"{checks.passed} passed"] if checks.passed else []
    said += [f"failed: {one_line(', '.join(checks.failed))}"] if checks.failed else []
    return said + ([f"{checks.pending} run"] if checks.pending else [])


def _proposed(one: Followed) -> list[str]:
    """What to do about a pull request that has ended."""
    if one.pull is None or one.pull.state.lives:
        return []
    if one.pull.merge is None:
        return [
            f"{one.address} was closed: say why as `reason` in stacks/{one.series}/series.toml (state declined), or reopen it"
        ]
    share = "" if one.share is None else f", with {one.share:.0%} of the lines of our patches in it"
    paths = ", ".join(ref.path for ref in one.refs) or one.series
    return [
        f"{one.address} was merged as {one.pull.merge[:_ID]} at {one.pull.merged}{share}",
        f"  drop {paths} with the first release that has it: stack rebase {one.upstream} --onto TAG finds it there and takes it out",
    ]


def _as_json(one: Followed) -> dict[str, object]:
    pull = one.pull
    merge = None
    if pull is not None and pull.merge is not None:
        merge = {"commit": pull.merge, "at": pull.merged, "share": None if one.share is None else round(one.share, 3)}
    return {
        "series": one.series,
        "upstream": one.upstream or None,
        "patches": [ref.path for ref in one.refs],
        "address": one.address,
        "number": pull.number if pull else None,
        "title": pull.title if pull else None,
        "state": pull.state.value if pull else None,
        "reviews": {"approved": list(one.reviews.approved), "changes": list(one.reviews.changes)},
        "checks": {"passed": one.checks.passed, "failed": list(one.checks.failed), "pending": one.checks.pending},
        "behind": one.behind,
        "merge": merge,
        "problem": one.problem or None,
    }
