# SPDX-License-Identifier: Apache-2.0
"""The command line of a server's owner, `spark-stack`: one module per verb, imported only when the verb runs."""

import click

from stack import __version__
from stack.cli import program
from stack.cli.common import Options
from stack.cli.lazy import Command, LazyGroup
from stack.cli.rendering import called, settings, terminal

_VERBS = {
    "check": "Check that the server answers right, and how fast.",
    "completion": "Print a script that completes verbs, options and recipes.",
    "doctor": "Find what keeps this machine from serving.",
    "down": "Stop the server; its images and its model stay.",
    "logs": "Show the server's log, and follow it.",
    "recipes": "List the recipes, with hardware, memory and speed.",
    "rollback": "Return to the server that ran before.",
    "setup": "Prepare several machines to serve one model together.",
    "share": "Share a verdict: an issue or a pull request.",
    "status": "Show the server, its image and its model.",
    "up": "Bring up a recipe's server, and wait for its answer.",
    "update": "Put a newer image in the place of the one that runs.",
}
"""The verbs, each with its line in the help; `stack.cli.owner.VERB` defines `command`."""


@click.group(
    name=called.OWNERS,
    cls=LazyGroup,
    lazy={name: Command(f"stack.cli.owner.{name}", text) for name, text in _VERBS.items()},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name=called.OWNERS)
@click.pass_context
def cli(context: click.Context) -> None:
    """Run a model's server on this machine: start, check, update and stop it.

    Exit codes: 0 done, 1 something needs a person, 2 wrong usage or a broken environment.
    """
    context.color = terminal.colours()
    context.obj = Options(None, None)


settings.add(cli)


def main() -> None:
    """Run the command line; every error that a user can cause becomes one line and exit code 2."""
    program.run(cli, interrupted="nothing is lost, run the command again")
