# SPDX-License-Identifier: Apache-2.0
"""`stack image`: images of a stack. Its verbs stand in `imaging/`, one module each."""

import click

from stack.cli.imaging import bisect, build, listing, promote, publish, rollback, validate, verify


@click.group("image")
def command() -> None:
    """Images of a stack: built, published, verified, found again; and which change broke one."""


for verb in (build, validate, publish, verify, listing, promote, rollback, bisect):
    command.add_command(verb.command)
