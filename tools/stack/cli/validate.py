# SPDX-License-Identifier: Apache-2.0
"""`stack validate`: what makes a stack publishable. Its verbs stand in `validating/`, one module each."""

import click

from stack.cli.validating import bench, kernels, pack, quality, serve


@click.group("validate")
def command() -> None:
    """Validate the stack on this machine; what cannot run here is reported as not run, never as passed.

    Each verb writes a verdict: `stack verdict` shows and compares them, and says whether they are enough for a release.
    """


for verb in (kernels, serve, bench, quality, pack):
    command.add_command(verb.command)
