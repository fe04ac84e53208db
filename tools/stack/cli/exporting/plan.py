# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr` without a further option: show the plan."""

from dataclasses import replace

import click

from stack.base import text
from stack.cli.common import COLOURS, outcome_json, outcome_rows, print_json, print_table
from stack.cli.exporting import Work
from stack.model.diff import counts, parse
from stack.upstreaming import drawing, graph, writing
from stack.upstreaming.proposal import Proposal, UpstreamPlan

_COLOURS = {"passes": "green", "fails": "red", "not run": "yellow"}


def run(work: Work) -> int:
    """Plan, draw and write; return 1 if a patch needs a person."""

    plans, options = _shown(work), work.options
    if options.svg is not None:
        options.svg.write_text(drawing.svg(plans), encoding="utf-8")
    written = writing.write(plans, options.output) if options.output is not None else ()
    if options.as_json:
        print_json({"lane": work.lane, "plans": [_as_json(plan) for plan in plans], "written": [str(file) for file in written]})
    else:
        for place, plan in enumerate(plans):
            if place:
                click.echo()
            _print(plan, tests=options.tests)
        if options.output is not None:
            click.echo(f"\n{text.counted(len(written), 'patch')} in {options.output}")
    return 1 if any(_needs_person(plan) for plan in plans) else 0


def _shown(work: Work) -> tuple[UpstreamPlan, ...]:
    """Return the plans, with only the pull requests that `--only` selects and those that they need."""

    if not work.options.only:
        return work.plans
    reach = graph.closed({proposal.name: {*proposal.needs} for plan in work.plans for proposal in plan.proposals})
    names = {name for proposal in work.chosen for name in (proposal.name, *reach[proposal.name])}
    return tuple(
        replace(plan, proposals=tuple(proposal for proposal in plan.proposals if proposal.name in names))
        for plan in work.plans
        if any(proposal.name in names for proposal in plan.proposals)
    )


def _needs_person(plan: UpstreamPlan) -> bool:
    failed = any(proposal.proof is not None and proposal.proof.state.value == "fails" for proposal in plan.proposals)
    return bool(plan.stuck) or failed


def _print(plan: UpstreamPlan, *, tests: bool) -> None:

    commit = plan.base[:12]
    named = commit if plan.onto == plan.base else f"{plan.onto} ({commit})"
    click.echo(f"{plan.upstream} {named if plan.real else f'{plan.onto}, not from its own git: nothing can be pushed'}")
    if plan.proposals:
        columns = ("wave", "pull request", "lines", "alone", *(("tests",) if tests else ()), "")
        print_table(columns, [row for proposal in plan.proposals for row in _rows(proposal, tests=tests)], colour=_COLOURS.get)
        click.echo()
        for line in drawing.tree(plan):
            click.echo(line)
    for title, carried in (("landed", plan.landed), ("needs a person", plan.stuck)):
        if carried:
            click.echo()
            rows = [line for row in carried for line in outcome_rows(row.patch.ref.path.removesuffix(".patch"), row)]
            print_table((title, "outcome", ""), rows, colour=COLOURS.get)
    if plan.aside:
        click.echo()
        print_table(("not proposed", ""), [(aside.ref.path.removesuffix(".patch"), aside.reason) for aside in plan.aside])
    if not plan.proposals:
        click.echo("nothing is left to propose")


def _rows(proposal: Proposal, *, tests: bool) -> list[tuple[str, ...]]:
    alone = "yes" if not proposal.needs else f"needs {', '.join(proposal.needs)}"
    proved = () if not tests else (proposal.proof.state.value if proposal.proof is not None else "none",)
    notes = [*proposal.why, *([proposal.proof.reason] if proposal.proof is not None and proposal.proof.reason else [])]
    if proposal.apart:
        way = "definition" if any(":" in part for part in proposal.apart) else "file"
        notes.append(f"falls into {len(proposal.apart)} parts by {way}: see --split")
    rows = [(str(proposal.wave), proposal.name, lines(proposal), alone, *proved, notes[0] if notes else "")]
    return rows + [("", "", "", "", *("" for _ in proved), more) for more in notes[1:]]


def lines(proposal: Proposal) -> str:
    """Return the number of lines that a pull request adds and removes: `+12 -3`."""
    added, removed = counted(proposal)
    return f"+{added} -{removed}"


def counted(proposal: Proposal) -> tuple[int, int]:
    """Count the lines that a pull request adds, and those that it removes."""

    return counts(file for part in proposal.parts for file in parse(part.patch.diff))


def _as_json(plan: UpstreamPlan) -> dict[str, object]:
    return {
        "upstream": plan.upstream,
        "onto": plan.onto,
        "base": plan.base,
        "real": plan.real,
        "proposals": [_proposal_json(proposal) for proposal in plan.proposals],
        "landed": [{"series": row.patch.ref.series, "file": row.patch.ref.file, **outcome_json(row)} for row in plan.landed],
        "stuck": [{"series": row.patch.ref.series, "file": row.patch.ref.file, **outcome_json(row)} for row in plan.stuck],
        "aside": [{"series": aside.ref.series, "file": aside.ref.file, "reason": aside.reason} for aside in plan.aside],
    }


def _proposal_json(proposal: Proposal) -> dict[str, object]:
    added, removed = counted(proposal)
    return {
        "name": proposal.name,
        "branch": proposal.branch,
        "wave": proposal.wave,
        "added": added,
        "removed": removed,
        "needs": [{"name": name, "why": why} for name, why in zip(proposal.needs, proposal.why, strict=True)],
        "parts": [{"patch": part.path, "cut": part.cut, "subject": part.patch.subject} for part in proposal.parts],
        "tests": {"state": proposal.proof.state.value, "reason": proposal.proof.reason} if proposal.proof is not None else None,
        "apart": list(proposal.apart),
    }
