# SPDX-License-Identifier: Apache-2.0
"""`stack lint`: check pins, series and patches for mistakes."""

from collections.abc import Iterator, Mapping, Sequence

import click

from stack.base.text import counted
from stack.carry import lint
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, one_line, source_option
from stack.cli.lane_options import all_lanes_option, in_lanes, lane_option
from stack.cli.rendering import table, terminal
from stack.cli.sentences import fits, say

_SHOWN = 3
"""How many places of equal findings are printed."""


@click.command("lint")
@lane_option
@all_lanes_option
@json_option
@source_option
@click.pass_context
def command(context: click.Context, all_lanes: bool, as_json: bool, source: str | None) -> None:
    """Check pins, series and patches.

    Every patch has to apply to its pin at exactly the lines that it names, and to be byte-stable: git exports the same file from
    it. The pins have to be a combination that upstream names. The stack's own rules stand in `[lint]` of stacks/stack.toml. The files
    of each lane have to be readable; with --lane or --all-lanes its patches are tried on its pins, too.
    """

    def run(options: Options) -> tuple[int, Mapping[str, object]]:
        with options.place(source) as place, Stores(options.load(), place) as stores:
            findings = lint.lint(stores)
            patches = len(stores.stack.patches)
        if not as_json:
            _print(findings, patches)
        listed = [
            {"place": finding.place, "problem": finding.problem, "remedy": finding.remedy or None} for finding in findings
        ]
        return 1 if findings else 0, {"clean": not findings, "findings": listed}

    context.exit(in_lanes(context.obj, all_lanes, as_json, run))


def _print(findings: Sequence[lint.Finding], patches: int) -> None:
    for group in lint.grouped(findings):
        first, *places = map(one_line, _lines(group))
        remedy = one_line(group.remedy)
        if remedy and fits(f"{first}: {remedy}"):
            say(f"{first}: {remedy}")
        else:
            # In a pipe a finding is one line, for programs that search it.
            click.echo("\n".join(table.wrap(first, columns) if (columns := terminal.columns()) else [first]))
            if remedy:
                say(remedy, indent="    ", below="")
        for line in places:
            click.echo(line)
    click.echo(
        counted(len(findings), "finding")
        if findings
        else f"in order: {counted(patches, 'patch applies and is', 'patches apply and are')} byte-stable"
    )


def _lines(group: lint.Group) -> Iterator[str]:
    """Yield a finding as one line; equal ones as their count, the first places, and how many more there are."""
    if len(group.places) == 1:
        yield f"{group.places[0]}: {group.problem}"
        return
    yield f"{len(group.places)} {lint.in_plural(group.places, group.problem)}"
    for place in group.places[:_SHOWN]:
        yield f"  {place}"
    if len(group.places) > _SHOWN:
        yield f"  and {len(group.places) - _SHOWN} more (--json lists all)"
