# SPDX-License-Identifier: Apache-2.0
"""`stack check`: is everything that the stack relies on there?"""

from pathlib import Path

import click

from stack.carry.check import check
from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, json_option, print_json, print_table, source_option


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@json_option
@source_option
@click.pass_context
def command(context: click.Context, files: tuple[Path, ...], as_json: bool, source: str) -> None:
    """Check what patches, recipes and compose files rely on against the trees at the pins.

    Imports, attributes of imported modules, includes, calls, environment variables and flags of `vllm serve`, read from the
    sources without importing or building anything. The stack's own recipes and compose files are looked at (validation/recipes,
    docker); name others as FILE. Exit code 1 when something is missing.
    """

    options: Options = context.obj
    with options.place(source) as place, Stores(options.load(), place) as stores:
        findings = check(stores, files)
        patches = len(stores.stack.patches)
    if as_json:
        fields = ("source", "upstream", "path", "line", "problem")
        print_json({"clean": not findings, "findings": [{name: getattr(one, name) for name in fields} for one in findings]})
    elif findings:
        print_table(("from", "place", "problem"), [(one.source, one.place, one.problem) for one in findings])
    else:
        click.echo(f"in order: what {patches} patches rely on is there")
    context.exit(1 if findings else 0)
