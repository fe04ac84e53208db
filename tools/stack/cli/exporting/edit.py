# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --edit`: write the descriptions of pull requests, except for edited parts, and open them in $EDITOR."""

import sys

import click

from stack.base.errors import StackError
from stack.cli.common import one_line, paused, print_json
from stack.cli.exporting import Work
from stack.upstreaming.blocks import Renewed
from stack.upstreaming.preparing import Preparation, write


def run(work: Work) -> int:
    """Write the descriptions, open them in the editor if there is a terminal, and print their files."""

    preparation = Preparation(work.stores, work.plans)
    if work.options.tests:
        preparation.record()
    chosen = work.chosen
    made = [preparation.renewed(proposal) for proposal in chosen]
    files = [write(work.stores, proposal, renewed) for proposal, renewed in zip(chosen, made, strict=True)]
    titles = [preparation.title(proposal) for proposal in chosen]
    if work.options.as_json:
        keys = ("name", "title", "file", "edited", "missing")
        values = zip(
            (proposal.name for proposal in chosen),
            titles,
            files,
            (renewed.edited for renewed in made),
            (renewed.missing for renewed in made),
            strict=True,
        )
        descriptions = [dict(zip(keys, each, strict=True)) for each in values]
        print_json({"lane": work.lane, "descriptions": descriptions}, "export-pr-edit")
        return 0
    if sys.stdin.isatty() and sys.stdout.isatty():
        for file in files:
            _edit(file)
    for title, file, renewed in zip(titles, files, made, strict=True):
        click.echo(one_line(title))
        click.echo(f"  {file}")
        for note in _left(renewed):
            click.echo(f"  {note}")
    return 0


def _edit(file: str) -> None:
    try:
        with paused():
            click.edit(filename=file)
    except click.ClickException as failed:
        raise StackError(f"no editor could be run ({failed.message})", f"name one in EDITOR, or edit {file}") from failed


def _left(renewed: Renewed) -> list[str]:
    """Describe the parts that were not renewed, with the reasons."""
    kept = [f"{name}: edited by hand, kept as it is" for name in renewed.edited]
    return kept + [f"{name}: removed by hand, not added again" for name in renewed.missing]
