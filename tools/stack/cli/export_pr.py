# SPDX-License-Identifier: Apache-2.0
"""`stack export-pr`: propose series as pull requests upstream. Each job has a module in `exporting/`."""

import importlib
from pathlib import Path
from typing import Any, cast

import click

from stack.carry.upstream_stores import Stores
from stack.cli.common import Options, interpreter, json_option, source_option
from stack.cli.completing import complete_series, complete_upstreams
from stack.cli.exporting import ExportOptions, Run, Work
from stack.cli.lane_options import lane_option

_JOBS = ("lint", "preview", "edit", "push", "open", "status")
"""The jobs besides planning, by their options; a call does at most one of them."""


@click.command("export-pr")
@click.argument("series", nargs=-1, metavar="[SERIES]...", shell_complete=complete_series)
@click.option(
    "--upstream",
    multiple=True,
    metavar="UPSTREAM",
    help="Only pull requests to that upstream; may be repeated.",
    shell_complete=complete_upstreams,
)
@click.option(
    "--onto",
    multiple=True,
    metavar="[UPSTREAM=]REV",
    help="Base of the pull requests: a tag, or with --source git a branch or commit; may be repeated, once for each upstream. "
    "Default: upstream's newest: its last release with archives, its default branch with git.",
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only the pull requests whose names match.")
@click.option(
    "--split",
    multiple=True,
    metavar="PATCH[:by=file|hunk|definition]",
    help="Cut that patch into independent parts, with a pull request for each.",
)
@click.option("--no-tests", "tests", flag_value=False, default=True, type=bool, help="Do not run the tests that prove a patch.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    help="Run the tests with this interpreter instead of making an environment.",
)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Draw the graph of the plan into this file.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the patches there, in a folder for each pull request.",
)
@click.option("--lint", is_flag=True, help="Check the pull requests against upstream's rules; exit code 1 if there are errors.")
@click.option(
    "--preview",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each pull request of the first wave there as a maintainer would see it (branch, title, description, diff), and "
    "an HTML page of all. Exit code 1 if upstream's rules refuse one.",
)
@click.option("--edit", is_flag=True, help="Write each pull request's description, and open it in $EDITOR.")
@click.option("--push", multiple=True, metavar="[UPSTREAM=]REMOTE", help="Push the branches of the first wave to your fork.")
@click.option(
    "--over",
    multiple=True,
    metavar="COMMIT",
    help="With --push: replace that commit in the fork although it was not pushed from here. A tag keeps it.",
)
@click.option(
    "--open", "open_", is_flag=True, help="Open them as drafts, each after you have confirmed that you read all of it."
)
@click.option(
    "--despite",
    multiple=True,
    metavar="ADDRESS",
    help="Ignore that pull request, which was found similar: you have checked that it is something else.",
)
@click.option("--status", is_flag=True, help="Show the state of our pull requests, and record it in series.toml.")
@json_option
@source_option
@lane_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    lint: bool,
    edit: bool,
    open_: bool,
    status: bool,
    source: str | None,
    **values: Any,
) -> None:
    """Plan SERIES (default: all) as pull requests upstream, in waves.

    Each patch is applied to upstream's own tree without the rest of the stack. If it applies, passes the drift check and its
    tests pass, it belongs to the first wave. A patch that needs a pull request of that wave goes into the second, and so on.
    Landed patches are left out, with the evidence. Nothing is pushed or opened without --push or --open. With --lane, the lane's
    patches are planned, and names and branches end with @LANE. The exit code is 1 if a patch needs a person.
    """
    wanted = ExportOptions(**values)
    given = {
        "lint": lint,
        "preview": wanted.preview is not None,
        "edit": edit,
        "push": bool(wanted.push),
        "open": open_,
        "status": status,
    }
    jobs = [name for name in _JOBS if given[name]]
    if len(jobs) > 1:
        raise click.UsageError(f"--{jobs[0]} and --{jobs[1]} cannot be combined: run one after the other")
    if wanted.over and not wanted.push:
        raise click.UsageError("--over says what --push may replace: give both")
    if wanted.despite and not (wanted.push or open_):
        raise click.UsageError("--despite says which pull requests --push and --open ignore: give one of them")
    if status and (wanted.only or wanted.onto or wanted.split):
        raise click.UsageError("--status does not plan: select with SERIES and --upstream only")
    if jobs and (wanted.svg or wanted.output):
        raise click.UsageError(f"--svg and --output show the plan, which --{jobs[0]} does not: run one after the other")

    options: Options = context.obj
    run = cast(Run, importlib.import_module(f"stack.cli.exporting.{jobs[0] if jobs else 'plan'}").run)
    with options.place(source) as place, Stores(options.load(writes=open_ or status), place) as stores:
        code = run(Work(context, stores, wanted))
    context.exit(code)
