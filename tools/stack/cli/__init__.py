# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb's module reads arguments, calls the library and prints.

A verb's module is imported only when the verb runs, so that `stack --help` answers at once.
"""

from pathlib import Path

import click

from stack import __version__
from stack.cli import program
from stack.cli.common import Options
from stack.cli.lazy import Command, LazyGroup
from stack.cli.rendering import settings, terminal

_VERBS = {
    "build": "Build wheels of the upstreams with the patches in them.",
    "cache": "Show what the cache holds, and make room.",
    "check": "Check that what patches and recipes rely on exists.",
    "checkout": "Make a git working tree with one commit per patch.",
    "compile-check": "Compile the files that the patches change, for SM121.",
    "completion": "Print a script that completes names, or the man page.",
    "diff": "Print what a patch, a series or all patches change.",
    "doctor": "Find problems of a machine, a script, a log or a server.",
    "explain": "Explain a patch or a conflict: both sides, and why.",
    "export": "Write patches for quilt, for `git am`, or as a branch.",
    "export-pr": "Plan, check and open series as upstream pull requests.",
    "fetch": "Download the source trees that the pins name.",
    "forecast": "Show what would break on upstream's unreleased branch.",
    "guard": "Watch what code beside the patches relies on.",
    "image": "Build, publish, verify and bisect container images.",
    "import": "Import patches: a git branch, a quilt series, files.",
    "init": "Begin a stack, or add an upstream to one.",
    "lane": "Hold the series on several releases: begin, list, drop.",
    "lint": "Check pins, series and patch files for mistakes.",
    "log": "Show what each change of the stack did.",
    "matrix": "List and run all jobs that show that the stack is good.",
    "pins": "Show, verify or set the upstream pins.",
    "prove": "Show that each patch passes its tests, and that they need it.",
    "rebase": "Move pins and patches to another upstream release.",
    "recipe": "List, show and check recipes; write compose files.",
    "redo": "Repeat the change that `stack undo` took back.",
    "refresh": "Write the commits of a working tree back as patch files.",
    "report": "Show the stack, or a planned rebase, as a page or text.",
    "resolutions": "List, show or drop stored conflict resolutions.",
    "roofline": "Compute the speed limit that the memory sets for a recipe.",
    "schema": "Print the JSON Schema of what a command prints.",
    "serve": "Start a recipe's server and check which kernels run.",
    "show": "Show a patch: why it exists and what it changes.",
    "status": "Show pins, series, patches and their states.",
    "triage": "Try patches on another revision of any repository.",
    "undo": "Restore the state before the last change of the stack.",
    "validate": "Measure kernels, a server or an archive on this machine.",
    "verdict": "Show, compare and sign verdicts; judge them by a gate.",
    "watch": "Carry the stack every night; keep issues and drafts.",
    "wheel": "Inspect and compare wheels; index a folder of them.",
}

COMPLETE = "_STACK_COMPLETE"
"""The variable with which a shell's script asks for completions."""
_MODULES = {"import": "importing"}
"""Modules that cannot have the name of their verb, which is a keyword of Python."""


@click.group(
    cls=LazyGroup,
    lazy={name: Command(f"stack.cli.{_MODULES.get(name, name).replace('-', '_')}", text) for name, text in _VERBS.items()},
    aliases={"wheels": "wheel"},
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="stack")
@click.option("--root", type=click.Path(path_type=Path), help="Folder of the stack (with pins.toml). Default: here or above.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    envvar="STACK_CACHE",
    help="Cache folder. Default: $STACK_CACHE, else the user's.",
)
@click.pass_context
def cli(context: click.Context, root: Path | None, cache: Path | None) -> None:
    """Carry a fork as named patch series on pinned upstream commits.

    Exit codes: 0 done, 1 something needs a person, 2 wrong usage or a broken environment.
    """
    context.color = terminal.colours()
    context.obj = Options(root, cache)


settings.add(cli)  # for the verbs that have a `--log` or `-v` of their own


def main() -> None:
    """Run the command line; every error that a user can cause becomes one line and exit code 2."""
    # The next writing verb finishes an announced switch, so the stack is in the old or the new state.
    program.run(cli, interrupted="the stack is whole, run the command again", complete_var=COMPLETE)
