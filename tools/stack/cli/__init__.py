# SPDX-License-Identifier: Apache-2.0
"""The command line: one module a verb, each reads arguments, calls the library, prints.

Heavy imports happen inside the verbs: `stack --help` answers at once.
"""

import os
import sys
from pathlib import Path

import click

from stack import __version__
from stack.cli import (
    build,
    cache,
    check,
    checkout,
    compile_check,
    doctor,
    export_pr,
    fetch,
    forecast,
    image,
    lint,
    pins,
    prove,
    rebase,
    recipe,
    redo,
    refresh,
    resolutions,
    roofline,
    serve,
    status,
    triage,
    undo,
    validate,
    verdict,
    wheel,
)
from stack.cli.common import Options, one_line
from stack.cli.output import outlive_readers
from stack.cli.signals import interrupting
from stack.model.errors import StackError


class _Verbs(click.Group):
    """The verbs; `wheels` is another word for `wheel`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "wheel" if cmd_name == "wheels" else cmd_name)


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
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
    context.obj = Options(root, cache)


VERBS = (
    pins,
    fetch,
    status,
    lint,
    check,
    prove,
    compile_check,
    checkout,
    refresh,
    rebase,
    forecast,
    resolutions,
    triage,
    build,
    wheel,
    recipe,
    serve,
    doctor,
    roofline,
    validate,
    verdict,
    image,
    export_pr,
    undo,
    redo,
    cache,
)
for verb in VERBS:
    cli.add_command(verb.command)


def main() -> None:
    """Run the command line; every error that a user can cause is one line and exit 2."""
    outlive_readers()
    with interrupting() as interrupts:
        try:
            code = _run()
        except (click.Abort, KeyboardInterrupt):
            # A switch that was announced is finished by the next verb that writes: the stack is the old one or the new one.
            code = _fail("interrupted: the stack is whole, run the command again", interrupts.exit_code)
        sys.exit(code)


def _run() -> int:
    try:
        # Without standalone mode, click returns the code that a verb exits with.
        return cli(standalone_mode=False, prog_name="stack") or 0
    except StackError as error:
        return _fail(str(error))
    except click.Abort:
        raise
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # since click 8.2
            error.show()
            return 2
        context = error.ctx if isinstance(error, click.UsageError) else None
        see = f": see `{context.command_path} --help`" if context else ""
        return _fail(" ".join(error.format_message().split()).rstrip(".") + see)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}: check disk space and rights, then run it again")
    except Exception as error:
        if os.environ.get("STACK_DEBUG"):
            raise
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return _fail(f"this is a defect, please report it ({said}): STACK_DEBUG=1 shows where")


def _fail(line: str, code: int = 2) -> int:
    # It may name what others wrote: files, or the words of servers.
    click.echo(f"stack: {one_line(line)}", err=True)
    return code
