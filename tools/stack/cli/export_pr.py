# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr`: series as pull requests upstream. Its jobs stand in `exporting/`, one module each."""

import importlib
from pathlib import Path
from typing import Any, cast

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, source_option
from stack.cli.exporting import Asked, Run, Work

_JOBS = ("lint", "edit", "push", "open", "status")
"""What a call can do beside planning, by its option; one thing a call."""


@click.command("export-pr")
@click.argument("series", nargs=-1, metavar="[SERIES]...")
@click.option(
    "--upstream", multiple=True, metavar="UPSTREAM", help="Only what goes to that upstream; may be given several times."
)
@click.option(
    "--onto",
    multiple=True,
    metavar="[UPSTREAM=]REV",
    help="Where the pull requests stand: a tag, or with --source git a branch or commit. Once an upstream. Default: what upstream "
    "has newest: with archives the last release, with git the default branch.",
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only the pull requests whose names match.")
@click.option(
    "--split",
    multiple=True,
    metavar="PATCH[:by=file|hunk|definition]",
    help="Cut that patch into the parts that stand alone, each a pull request of its own.",
)
@click.option("--no-tests", "tests", flag_value=False, default=True, type=bool, help="Do not run the tests that prove a patch.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run them with this interpreter; no environment is made.",
)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the graph of the plan into this file.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="Write the patches there, a folder each pull request."
)
@click.option("--lint", is_flag=True, help="Check the pull requests by upstream's rules; errors: exit code 1.")
@click.option("--edit", is_flag=True, help="Write each pull request's description, and open it in $EDITOR.")
@click.option("--push", multiple=True, metavar="[UPSTREAM=]REMOTE", help="Push the branches of the first wave to your fork.")
@click.option(
    "--over",
    multiple=True,
    metavar="COMMIT",
    help="With --push: replace what the fork has there, though it was not pushed from here. It is kept under a tag.",
)
@click.option(
    "--open", "open_", is_flag=True, help="Open them as drafts, each after you confirmed that you have read all of it."
)
@click.option(
    "--despite",
    multiple=True,
    metavar="ADDRESS",
    help="You have looked at that pull request, which was found alike, and it is something else.",
)
@click.option("--status", is_flag=True, help="Show what became of ours, and keep it in series.toml.")
@json_option
@source_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    lint: bool,
    edit: bool,
    open_: bool,
    status: bool,
    source: str,
    **asked: Any,
) -> None:
    """Plan SERIES (all, unless named) as pull requests upstream, in waves.

    Each patch goes alone onto upstream's own tree, without the rest of the stack: what applies there, passes the drift check and
    proves itself is the first wave; what needs a pull request of that wave waits in the second, and so on. What has landed is left
    out, with the evidence. Nothing is pushed or opened without --push and --open. Exit code 1 when a patch needs a person.
    """
    wanted = Asked(**asked)
    given = {"lint": lint, "edit": edit, "push": bool(wanted.push), "open": open_, "status": status}
    jobs = [name for name in _JOBS if given[name]]
    if len(jobs) > 1:
        raise click.UsageError(f"--{jobs[0]} and --{jobs[1]} are two things: one after the other")
    if wanted.over and not wanted.push:
        raise click.UsageError("--over says what --push may replace: give both")
    if wanted.despite and not (wanted.push or open_):
        raise click.UsageError("--despite says what --push and --open may go past: give one of them")
    if status and (wanted.only or wanted.onto or wanted.split):
        raise click.UsageError("--status plans nothing, it asks for what series.toml names: choose with SERIES and --upstream")
    if jobs and (wanted.svg or wanted.output):
        raise click.UsageError(f"--svg and --output show the plan, --{jobs[0]} does something else: one after the other")

    options: Options = context.obj
    run = cast(Run, importlib.import_module(f"stack.cli.exporting.{jobs[0] if jobs else 'plan'}").run)
    with options.place(source) as place, Stores(options.load(writes=open_ or status), place) as stores:
        code = run(Work(context, stores, wanted))
    context.exit(code)
