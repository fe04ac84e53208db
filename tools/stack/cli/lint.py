# SPDX-License-Identifier: Apache-2.0
"""`stack lint`: check pins, series and patches for mistakes."""

from collections.abc import Iterator

import click

from stack.base.text import counted
from stack.carry import lint
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, one_line, print_json, source_option

_SHOWN = 3
"""How many places of equal findings are printed."""


@click.command("lint")
@json_option
@source_option
@click.pass_context
def command(context: click.Context, as_json: bool, source: str | None) -> None:
    """Check pins, series and patches.

    Every patch has to apply to its pin at exactly the lines that it names, and to be byte-stable: git exports the same file from
    it. The pins have to be a combination that upstream names. The stack's own rules stand in `[lint]` of stacks/stack.toml.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        findings = lint.lint(stores)
        patches = len(stores.stack.patches)
    if as_json:
        print_json(
            {
                "clean": not findings,
                "findings": [
                    {"place": finding.place, "problem": finding.problem, "remedy": finding.remedy or None}
                    for finding in findings
                ],
            }
        )
    else:
        for group in lint.grouped(findings):
            for line in _lines(group):
                click.echo(one_line(line))
        click.echo(
            counted(len(findings), "finding")
            if findings
            else f"in order: {counted(patches, 'patch applies and is', 'patches apply and are')} byte-stable"
        )
    context.exit(1 if findings else 0)


def _lines(group: lint.Group) -> Iterator[str]:
    """Print a finding on one line; equal ones as their count, the first places, and how many more there are."""
    remedy = f": {group.remedy}" if group.remedy else ""
    if len(group.places) == 1:
        yield f"{group.places[0]}: {group.problem}{remedy}"
        return
    yield f"{len(group.places)} {lint.in_plural(group.places, group.problem)}{remedy}"
    for place in group.places[:_SHOWN]:
        yield f"  {place}"
    if len(group.places) > _SHOWN:
        yield f"  and {len(group.places) - _SHOWN} more (--json lists all)"
