# SPDX-License-Identifier: Apache-2.0
"""`stack completion`: the script with which a shell completes verbs, options and names, and the man page."""

import click
from click.shell_completion import get_completion_class

from stack.cli import COMPLETE, man_page
from stack.cli.rendering import called


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "man"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete verbs, options, and the names of the stack; or the man page.

    \b
    ~/.bashrc:    eval "$(stack completion bash)"
    ~/.zshrc:     eval "$(stack completion zsh)"
    config.fish:  stack completion fish | source

    `git carry --help` opens a man page. If it is missing:

    \b
    mkdir -p ~/.local/share/man/man1
    git carry completion man > ~/.local/share/man/man1/git-carry.1
    """
    if shell == "man":
        root = context.find_root()
        assert isinstance(root.command, click.Group)
        click.echo(man_page.page(called.name().replace(" ", "-"), root.command, root), nl=False)
        return
    made = get_completion_class(shell)
    assert made is not None, "click knows these shells"
    for program in ("stack", "git-carry"):
        click.echo(made(context.find_root().command, {}, program, COMPLETE).source())
    if shell == "bash":
        click.echo(_GIT_IN_BASH)


# git's own completion calls `_git_NAME` for the arguments of `git NAME`.
_GIT_IN_BASH = """\
_git_carry() {
    local COMP_WORDS=(git-carry "${COMP_WORDS[@]:2}") COMP_CWORD=$((COMP_CWORD - 1))
    _git_carry_completion git-carry
}
"""
