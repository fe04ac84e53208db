# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr` without more: the plan."""

from dataclasses import replace

import click

from stack.cli.common import COLOURS, outcome_json, outcome_rows, print_json, print_table
from stack.cli.exporting import Work
from stack.model.diff import counts, parse
from stack.upstreaming import drawing, graph, writing
from stack.upstreaming.proposal import Plan, Proposal

_COLOURS = {"passes": "green", "fails": "red", "not run": "yellow"}


def run(work: Work) -> int:
    """Plan, draw, write; 1 where a patch needs a person."""

    plans, asked = _shown(work), work.asked
    if asked.svg is not None:
        asked.svg.write_text(drawing.svg(plans), encoding="utf-8")
    written = writing.write(plans, asked.output) if asked.output is not None else ()
    if asked.as_json:
        print_json({"plans": [_as_json(plan) for plan in plans], "written": [str(file) for file in written]})
    else:
        for place, plan in enumerate(plans):
            if place:
                click.echo()
            _print(plan, tests=asked.tests)
        if asked.output is not None:
            click.echo(f"\n{len(written)} patches in {asked.output}")
    return 1 if any(_needs_person(plan) for plan in plans) else 0


def _shown(work: Work) -> tuple[Plan, ...]:
    """The plans, with only the pull requests that `--only` names and what they need."""

    if not work.asked.only:
        return work.plans
    reach = graph.closed({one.name: {*one.needs} for plan in work.plans for one in plan.proposals})
    names = {name for one in work.chosen for name in (one.name, *reach[one.name])}
    return tuple(
        replace(plan, proposals=tuple(one for one in plan.proposals if one.name in names))
        for plan in work.plans
        if any(one.name in names for one in plan.proposals)
    )


def _needs_person(plan: Plan) -> bool:
    failed = any(one.proof is not None and one.proof.state.value == "fails" for one in plan.proposals)
    return bool(plan.stuck) or failed


def _print(plan: Plan, *, tests: bool) -> None:

    commit = plan.base[:12]
    named = commit if plan.onto == plan.base else f"{plan.onto} ({commit})"
    click.echo(f"{plan.upstream} {named if plan.real else f'{plan.onto}, not from its own git: nothing can be pushed'}")
    if plan.proposals:
        columns = ("wave", "pull request", "lines", "alone", *(("tests",) if tests else ()), "")
        print_table(columns, [row for one in plan.proposals for row in _rows(one, tests=tests)], colour=_COLOURS.get)
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
        print_table(("not proposed", ""), [(one.ref.path.removesuffix(".patch"), one.reason) for one in plan.aside])
    if not plan.proposals:
        click.echo("nothing is left to propose")


def _rows(one: Proposal, *, tests: bool) -> list[tuple[str, ...]]:
    alone = "yes" if not one.needs else f"needs {', '.join(one.needs)}"
    proved = () if not tests else (one.proof.state.value if one.proof is not None else "none",)
    told = [*one.why, *([one.proof.reason] if one.proof is not None and one.proof.reason else [])]
    if one.apart:
        way = "definition" if any(":" in part for part in one.apart) else "file"
        told.append(f"falls into {len(one.apart)} parts by {way}: see --split")
    rows = [(str(one.wave), one.name, lines(one), alone, *proved, told[0] if told else "")]
    return rows + [("", "", "", "", *("" for _ in proved), more) for more in told[1:]]


def lines(one: Proposal) -> str:
    """How many lines a pull request adds and removes: `+12 -3`."""
    added, removed = counted(one)
    return f"+{added} -{removed}"


def counted(one: Proposal) -> tuple[int, int]:
    """How many lines a pull request adds, and how many it removes."""

    return counts(file for part in one.parts for file in parse(part.patch.diff))


def _as_json(plan: Plan) -> dict[str, object]:
    return {
        "upstream": plan.upstream,
        "onto": plan.onto,
        "base": plan.base,
        "real": plan.real,
        "proposals": [_proposal_json(one) for one in plan.proposals],
        "landed": [{"series": row.patch.ref.series, "file": row.patch.ref.file, **outcome_json(row)} for row in plan.landed],
        "stuck": [{"series": row.patch.ref.series, "file": row.patch.ref.file, **outcome_json(row)} for row in plan.stuck],
        "aside": [{"series": one.ref.series, "file": one.ref.file, "reason": one.reason} for one in plan.aside],
    }


def _proposal_json(one: Proposal) -> dict[str, object]:
    added, removed = counted(one)
    return {
        "name": one.name,
        "branch": one.branch,
        "wave": one.wave,
        "added": added,
        "removed": removed,
        "needs": [{"name": name, "why": why} for name, why in zip(one.needs, one.why, strict=True)],
        "parts": [{"patch": part.path, "cut": part.cut, "subject": part.patch.subject} for part in one.parts],
        "tests": {"state": one.proof.state.value, "reason": one.proof.reason} if one.proof is not None else None,
        "apart": list(one.apart),
    }
