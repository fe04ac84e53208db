# SPDX-License-Identifier: Apache-2.0
"""The command line: each verb's module reads arguments, calls the library and prints.

A verb's module is imported only when the verb runs, so that `stack --help` answers at once.
"""

import gc
import os
import sys
from pathlib import Path

import click

from stack import __version__
from stack.base.errors import StackError
from stack.cli import documents
from stack.cli.common import Options
from stack.cli.lazy import Command, LazyGroup
from stack.cli.output import outlive_readers
from stack.cli.rendering import called, settings, terminal
from stack.cli.sentences import tell
from stack.cli.signals import interrupting

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
    "image": "Build, publish, verify and bisect container images.",
    "import": "Import patches: a git branch, a quilt series, files.",
    "init": "Begin a stack, or add an upstream to one.",
    "lane": "Hold the series on several releases: begin, list, drop.",
    "lint": "Check pins, series and patch files for mistakes.",
    "log": "Show what each change of the stack did.",
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
    # Without colours at all, or with them in a pipe, too; else click decides for each stream.
    coloured = terminal.is_coloured()
    context.color = None if coloured and terminal.is_terminal() else coloured
    context.obj = Options(root, cache)


settings.add(cli)  # for the verbs that have a `--log` or `-v` of their own


def main() -> None:
    """Run the command line; every error that a user can cause becomes one line and exit code 2."""
    outlive_readers()
    settings.reset()
    documents.reset()
    with interrupting() as interrupts:
        try:
            code = _run()
        except (click.Abort, KeyboardInterrupt):
            # The next writing verb finishes an announced switch, so the stack is in the old or the new state.
            code = _fail(StackError("interrupted", "the stack is whole, run the command again"), interrupts.exit_code)
        if settings.current().log is not None:
            from stack.cli.rendering import log_file  # noqa: PLC0415

            log_file.close(code)
        gc.freeze()  # Python collects garbage once more as it ends, which takes a hundredth of a second and frees nothing in time.
        sys.exit(code)


def _run() -> int:
    try:
        # Without standalone mode, click returns the exit code of a verb.
        return cli(standalone_mode=False, prog_name=called.name(), complete_var=COMPLETE) or 0
    except StackError as error:
        return _fail(error)
    except click.Abort:
        raise
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
            error.show()
            return 2
        from stack.cli import usage  # noqa: PLC0415

        return _fail(usage.worded(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(StackError(f"{place}{error.strerror or error}", "check disk space and rights, then run it again"))
    except Exception as error:
        if os.environ.get("STACK_DEBUG"):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return _fail(StackError(f"this is a defect, please report it ({reason})", "STACK_DEBUG=1 shows where"))


def _fail(error: StackError, code: int = 2) -> int:
    """Print an error on stderr, with `--json` also as a document on stdout; return the exit code."""
    tell(str(error))
    words = sys.argv[1:]
    if documents.are_wanted(words):
        documents.show_error(error, code, documents.verb(cli, words))
    return code
