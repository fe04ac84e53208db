# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --lint`: do the planned pull requests keep upstream's rules?"""

from collections.abc import Callable, Mapping, Sequence

import click

from stack.cli.common import one_line, print_json, print_table
from stack.cli.exporting import Work
from stack.upstreaming.linting import Desk, Finding
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.proposal import Proposal

_COLOURS = {"error": "red", "warning": "yellow"}


def run(work: Work) -> int:
    """Lint, print; 1 where a pull request may not be opened as it is."""

    preparation = Preparation(work.stores, work.plans)
    if work.asked.tests:
        preparation.record()
    with Desk(work.stores.place.cache, work.stores.tell) as desk:
        found = {}
        for one in work.chosen:
            work.stores.tell(f"looking at {one.name}")
            found[one.name] = preparation.findings(one, desk)
    upstreams = dict.fromkeys(one.upstream for one in work.chosen)
    together = {upstream: preparation.at_once(upstream, work.chosen) for upstream in upstreams}
    every = [finding for some in (*found.values(), *together.values()) for finding in some]
    if work.asked.as_json:
        titles = {one.name: preparation.title(one) for one in work.chosen}
        print_json(
            {
                "clean": not any(one.blocks for one in every),
                "upstreams": [
                    {"upstream": name, "findings": [_as_json(one) for one in some]} for name, some in together.items()
                ],
                "pulls": [
                    {"name": name, "title": titles[name], "findings": [_as_json(one) for one in some]}
                    for name, some in found.items()
                ],
            }
        )
    else:
        _print(work, preparation.title, found, together)
    return 1 if any(one.blocks for one in every) else 0


def _print(
    work: Work,
    title: Callable[[Proposal], str],
    found: Mapping[str, Sequence[Finding]],
    together: Mapping[str, Sequence[Finding]],
) -> None:
    for upstream, some in together.items():
        for one in some:
            click.echo(f"{one.severity.value}: {upstream}: {one.problem}: {one.remedy}")
    for proposal in work.chosen:
        some = found[proposal.name]
        errors = sum(one.blocks for one in some)
        click.echo(f"\n{proposal.name}: {errors} error(s), {len(some) - errors} warning(s)\n{one_line(title(proposal))}")
        if some:
            print_table(("", "rule", "where", ""), [_row(one) for one in some], colour=_COLOURS.get)


def _row(one: Finding) -> tuple[str, str, str, str]:
    said = f"{one.problem}: {one.remedy}" if one.remedy else one.problem
    return one.severity.value, one.rule, one_line(one.place), one_line(said)


def _as_json(one: Finding) -> dict[str, str]:
    return {"rule": one.rule, "severity": one.severity.value, "place": one.place, "problem": one.problem, "remedy": one.remedy}
