# SPDX-License-Identifier: Apache-2.0
"""`spark-stack completion`: the script with which a shell completes verbs, options and names of recipes."""

import click
from click.shell_completion import get_completion_class

from stack.cli.rendering import called

_VARIABLE = "_SPARK_STACK_COMPLETE"
"""The variable with which a shell's script asks for completions: the one that click makes of the program's name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete verbs, options and names of recipes.

    \b
    ~/.bashrc:    eval "$(spark-stack completion bash)"
    ~/.zshrc:     eval "$(spark-stack completion zsh)"
    config.fish:  spark-stack completion fish | source
    """
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    click.echo(made(context.find_root().command, {}, called.OWNERS, _VARIABLE).source())
