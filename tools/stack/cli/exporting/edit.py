# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr --edit`: the descriptions of pull requests, made anew where nobody has touched them, and opened in $EDITOR."""

import sys

import click

from stack.base.errors import StackError
from stack.cli.common import one_line, paused, print_json
from stack.cli.exporting import Work
from stack.upstreaming.blocks import Renewed
from stack.upstreaming.preparing import Preparation, write


def run(work: Work) -> int:
    """Write, edit, print; without a terminal they are only written."""

    preparation = Preparation(work.stores, work.plans)
    if work.asked.tests:
        preparation.record()
    chosen = work.chosen
    made = [preparation.renewed(one) for one in chosen]
    files = [write(work.stores, one, renewed) for one, renewed in zip(chosen, made, strict=True)]
    titles = [preparation.title(one) for one in chosen]
    if work.asked.as_json:
        keys = ("name", "title", "file", "edited", "missing")
        values = zip(
            (one.name for one in chosen),
            titles,
            files,
            (one.edited for one in made),
            (one.missing for one in made),
            strict=True,
        )
        print_json({"descriptions": [dict(zip(keys, each, strict=True)) for each in values]})
        return 0
    if sys.stdin.isatty() and sys.stdout.isatty():
        for file in files:
            _edit(file)
    for title, file, renewed in zip(titles, files, made, strict=True):
        click.echo(one_line(title))
        click.echo(f"  {file}")
        for said in _left(renewed):
            click.echo(f"  {said}")
    return 0


def _edit(file: str) -> None:
    try:
        with paused():
            click.edit(filename=file)
    except click.ClickException as failed:
        raise StackError(f"no editor could be run ({failed.message})", f"name one in EDITOR, or edit {file}") from failed


def _left(renewed: Renewed) -> list[str]:
    """What was not made anew, and why."""
    kept = [f"{name}: edited by hand, and left as it is" for name in renewed.edited]
    return kept + [f"{name}: taken out by hand, and left out" for name in renewed.missing]
