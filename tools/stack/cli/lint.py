# SPDX-License-Identifier: Apache-2.0
"""`stack lint`: check pins, series and patches for mistakes."""

import click

from stack.carry import lint
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, source_option


@click.command("lint")
@json_option
@source_option
@click.pass_context
def command(context: click.Context, as_json: bool, source: str | None) -> None:
    """Check pins, series and patches.

    Every patch has to apply to its pin at exactly the lines that it names, and to be byte-stable: git exports the same file from
    it. The pins have to be a combination that upstream names.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        findings = lint.lint(stores)
        patches = len(stores.stack.patches)
    if as_json:
        print_json(
            {"clean": not findings, "findings": [{"place": finding.place, "problem": finding.problem} for finding in findings]}
        )
    else:
        for finding in findings:
            click.echo(f"{finding.place}: {finding.problem}")
        click.echo(f"{len(findings)} finding(s)" if findings else f"in order: {patches} patches apply and are byte-stable")
    context.exit(1 if findings else 0)
