# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --lint`: check the planned pull requests against upstream's rules."""

from collections.abc import Callable, Mapping, Sequence

import click

from stack.base.text import counted
from stack.cli.common import one_line, print_json, print_table
from stack.cli.exporting import Work
from stack.upstreaming.linting import Desk, LintFinding
from stack.upstreaming.preparing import Preparation
from stack.upstreaming.proposal import Proposal

_COLOURS = {"error": "red", "warning": "yellow"}


def run(work: Work) -> int:
    """Lint and print; return 1 if a pull request may not be opened as it is."""

    preparation = Preparation(work.stores, work.plans)
    if work.options.tests:
        preparation.record()
    with Desk(work.stores.place.cache, work.stores.tell) as desk:
        findings = {}
        for proposal in work.chosen:
            work.stores.tell(f"checking {proposal.name}")
            findings[proposal.name] = preparation.findings(proposal, desk)
    upstreams = dict.fromkeys(proposal.upstream for proposal in work.chosen)
    together = {upstream: preparation.at_once(upstream, work.chosen) for upstream in upstreams}
    every = [finding for some in (*findings.values(), *together.values()) for finding in some]
    if work.options.as_json:
        titles = {proposal.name: preparation.title(proposal) for proposal in work.chosen}
        print_json(
            {
                "lane": work.lane,
                "clean": not any(finding.blocks for finding in every),
                "upstreams": [
                    {"upstream": name, "findings": [finding_json(finding) for finding in some]}
                    for name, some in together.items()
                ],
                "pulls": [
                    {"name": name, "title": titles[name], "findings": [finding_json(finding) for finding in some]}
                    for name, some in findings.items()
                ],
            },
            "export-pr-lint",
        )
    else:
        _print(work, preparation.title, findings, together)
    return 1 if any(finding.blocks for finding in every) else 0


def _print(
    work: Work,
    title: Callable[[Proposal], str],
    findings: Mapping[str, Sequence[LintFinding]],
    together: Mapping[str, Sequence[LintFinding]],
) -> None:
    for upstream, some in together.items():
        for finding in some:
            click.echo(f"{finding.severity.value}: {upstream}: {finding.problem}: {finding.remedy}")
    for proposal in work.chosen:
        some = findings[proposal.name]
        errors = sum(finding.blocks for finding in some)
        click.echo(
            f"\n{proposal.name}: {counted(errors, 'error')}, {counted(len(some) - errors, 'warning')}\n{one_line(title(proposal))}"
        )
        if some:
            print_table(("", "rule", "where", ""), [_row(finding) for finding in some], colour=_COLOURS.get)


def _row(finding: LintFinding) -> tuple[str, str, str, str]:
    text = f"{finding.problem}: {finding.remedy}" if finding.remedy else finding.problem
    return finding.severity.value, finding.rule, one_line(finding.place), one_line(text)


def finding_json(finding: LintFinding) -> dict[str, str]:
    """Return a finding as the documentation of --json describes it."""
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "place": finding.place,
        "problem": finding.problem,
        "remedy": finding.remedy,
    }
