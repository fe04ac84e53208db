# SPDX-License-Identifier: Apache-2.0
"""`stack image`: images of a stack. Its verbs stand in `imaging/`, one module each."""

import click

from stack.cli.imaging import bisect


@click.group("image")
def command() -> None:
    """Images of a stack, and which change broke one."""


for verb in (bisect,):
    command.add_command(verb.command)
