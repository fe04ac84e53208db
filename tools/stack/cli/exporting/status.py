# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --status`: ask the forges for the state of our pull requests, and record it in `series.toml`."""

from collections.abc import Sequence

import click

from stack.cli.common import one_line, print_json, print_table
from stack.cli.exporting import Work
from stack.cli.exporting.hosts import clients
from stack.cli.sentences import say
from stack.upstreaming import following
from stack.upstreaming.following import Followed

COLOURS = {"open": "green", "draft": "cyan", "merged": "magenta", "closed": "bold red", "?": "bold red"}
_ID = 12


def run(work: Work) -> int:
    """Show every pull request that `series.toml` records; return 1 if one needs a person."""

    stack, options = work.stores.stack, work.options
    with clients(work) as client:
        followed = tuple(following.follow(work.stores, options.series, options.upstream, client))
    changed = following.states(stack, followed)
    if changed:
        following.record(stack, changed)
    if options.as_json:
        print_json(
            {
                "lane": work.lane,
                "pulls": [_as_json(pull) for pull in followed],
                "states": {name: str(state) for name, state in changed.items()},
            },
            "export-pr-status",
        )
    else:
        _print(followed)
        for name, state in changed.items():
            click.echo(f"{name} is {state} now, as recorded in {stack.place(f'{name}/series.toml')}")
    return int(any(pull.needs_person for pull in followed))


def _print(followed: Sequence[Followed]) -> None:
    if not followed:
        say("no series.toml records a pull request: `stack export-pr --open` does")
        return
    rows = [row for pull in followed for row in _rows(pull)]
    print_table(("pull request", "state", "reviews", "checks", "behind", "patches"), rows, colour=COLOURS.get)
    for pull in followed:
        for line in _proposed(pull):
            say(line.strip(), indent=" " * (len(line) - len(line.lstrip())))


def _rows(followed: Followed) -> list[tuple[str, ...]]:
    paths = [ref.path.removesuffix(".patch") for ref in followed.refs]
    first, *rest = paths or [followed.series]
    if followed.pull is None:
        head = (followed.address, "?", "", "", "", first)
        return [head, *_blank(rest), ("", "", followed.problem, "", "", "")]
    head = (
        followed.address,
        followed.pull.state.value,
        "; ".join(_reviews(followed)),
        "; ".join(_checks(followed)),
        "" if followed.behind is None else str(followed.behind),
        first,
    )
    return [head, *_blank(rest)]


def _blank(paths: Sequence[str]) -> list[tuple[str, ...]]:
    return [("", "", "", "", "", path) for path in paths]


def _reviews(followed: Followed) -> list[str]:
    groups = [("approved by", followed.reviews.approved), ("changes requested by", followed.reviews.changes)]
    return [f"{words} {one_line(', '.join(logins))}" for words, logins in groups if logins]


def _checks(followed: Followed) -> list[str]:
    checks = followed.checks
    parts = [f"{checks.passed} passed"] if checks.passed else []
    parts += [f"failed: {one_line(', '.join(checks.failed))}"] if checks.failed else []
    return parts + ([f"{checks.pending} run"] if checks.pending else [])


def _proposed(followed: Followed) -> list[str]:
    """Advise what to do about a pull request that was merged or closed."""
    if followed.pull is None or followed.pull.state.lives:
        return []
    if followed.pull.merge is None:
        return [
            f"{followed.address} was closed: give the reason as `reason` in stacks/{followed.series}/series.toml (state declined), or reopen it"
        ]
    share = "" if followed.share is None else f", with {followed.share:.0%} of the lines of our patches in it"
    paths = ", ".join(ref.path for ref in followed.refs) or followed.series
    return [
        f"{followed.address} was merged as {followed.pull.merge[:_ID]} at {followed.pull.merged}{share}",
        f"  when a release has it, stack rebase {followed.upstream} --onto TAG finds it there and drops {paths}",
    ]


def _as_json(followed: Followed) -> dict[str, object]:
    pull = followed.pull
    merge = None
    if pull is not None and pull.merge is not None:
        merge = {"commit": pull.merge, "at": pull.merged, "share": None if followed.share is None else round(followed.share, 3)}
    return {
        "series": followed.series,
        "upstream": followed.upstream or None,
        "patches": [ref.path for ref in followed.refs],
        "address": followed.address,
        "number": pull.number if pull else None,
        "title": pull.title if pull else None,
        "state": pull.state.value if pull else None,
        "reviews": {"approved": list(followed.reviews.approved), "changes": list(followed.reviews.changes)},
        "checks": {
            "passed": followed.checks.passed,
            "failed": list(followed.checks.failed),
            "pending": followed.checks.pending,
        },
        "behind": followed.behind,
        "merge": merge,
        "problem": followed.problem or None,
    }
