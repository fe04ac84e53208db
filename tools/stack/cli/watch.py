# SPDX-License-Identifier: Apache-2.0
"""`stack watch`: the night's work for a fork, its workflow, and its state."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stack.base.text import counted
from stack.cli.common import Options, interpreter, json_option, print_json, print_table, progress, source_option
from stack.cli.completing import complete_upstreams
from stack.cli.sentences import say, tell

if TYPE_CHECKING:
    from stack.carry.forecast import Forecast
    from stack.forge.threads import Threads
    from stack.model.stack import Stack
    from stack.watch.own_repository import OwnRepository
    from stack.watch.running import Watched
    from stack.watch.status import Standing

_RUNS = 30
"""Runs of the workflow that `status` looks at."""

_remote_option = click.option(
    "--remote",
    default="origin",
    show_default=True,
    metavar="NAME",
    help="The remote of the stack's git that is your repository.",
)


@click.group("watch")
def command() -> None:
    """Carry the stack to new releases every night; keep an issue for each upstream, and a draft pull request for a new release.

    `init` writes the workflow into your repository, `run` does the night's work, and `status` says when it last ran.
    """


@command.command(short_help="Carry the stack once, and write what was found.")
@click.argument("upstream", nargs=-1, shell_complete=complete_upstreams)
@_remote_option
@click.option("--dry-run", is_flag=True, help="Show what would be written first, and write nothing.")
@click.option("--prove", is_flag=True, help="Run the proofs on the release of the pull request.")
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    callback=interpreter,
    metavar="FILE",
    help="With --prove: run them with this interpreter. Default: an environment in the cache.",
)
@json_option
@source_option
@click.pass_context
def run(
    context: click.Context,
    upstream: tuple[str, ...],
    remote: str,
    dry_run: bool,
    prove: bool,
    python: Path | None,
    as_json: bool,
    source: str | None,
) -> None:
    """Carry each lane to upstream's newest release and to its main branch, and write what was found to your repository.

    It works on the default branch as your forge has it, not on this checkout. Each upstream gets one issue, which is updated in place. A
    release that takes all patches gets one draft pull request. The token is found as `gh` finds it. The labels `hold` and `retry` on an
    issue or a pull request steer it. Exit code 1 if a patch needs a person, 2 if an upstream could not be examined.
    """
    from stack.watch import own_repository, running  # noqa: PLC0415

    if python is not None and not prove:
        raise click.UsageError("--python goes with --prove")
    options: Options = context.obj
    root = options.find_root()
    own = own_repository.locate(root, remote)
    with options.place(source) as place, _forge(own, reads=dry_run) as forge:
        order = running.Order(upstream, datetime.now(UTC).date(), dry_run, prove, python)
        watched = []
        for each in running.run(own, forge, place, order, _report):
            watched.append(each)
            if not as_json:
                _print_watched(each, dry_run=dry_run)
    for each in watched:
        if each.problem is not None:
            tell(f"{each.upstream}: {each.problem}")
    if as_json:
        print_json(
            {"repository": own.repository.shown, "dry_run": dry_run, "upstreams": [_watched_json(each) for each in watched]}
        )
    failed = any(each.problem is not None for each in watched)
    context.exit(2 if failed else 1 if any(each.night and each.night.needs_person for each in watched) else 0)


@command.command(short_help="Show when the nightly run last ran, and how it ended.")
@_remote_option
@json_option
@click.pass_context
def status(context: click.Context, remote: str, as_json: bool) -> None:
    """Show when the nightly run last ran, how it ended, and how old each issue's date is.

    Exit code 1 if the last run began more than 50 hours ago, or failed, or an issue's date is too old.
    """
    from stack.watch import observing, own_repository, plan, workflow  # noqa: PLC0415
    from stack.watch import status as judging  # noqa: PLC0415

    options: Options = context.obj
    root = options.find_root()
    own = own_repository.locate(root, remote)
    with _forge(own, reads=True) as forge:
        names = observing.upstreams(options.load(), ())
        runs = forge.runs(workflow.NAME, _RUNS)
        found = judging.standing(runs, forge.issues(plan.LABEL), names, datetime.now(UTC))
    if as_json:
        print_json(_standing_json(own, found))
    else:
        _print_standing(own, found)
    context.exit(1 if found.needs_person else 0)


@command.command()
@click.option("--github", "forge", flag_value="github", default="github", help="Write a workflow for GitHub (default).")
@click.option(
    "--runner",
    multiple=True,
    metavar="LABEL",
    help="Label of the runner, such as self-hosted; repeat it for several. Default: one of GitHub's own.",
)
@click.option("--prove", is_flag=True, help="Let the workflow run the proofs, too.")
@click.option("--force", is_flag=True, help="Replace the file if it differs.")
@json_option
@click.pass_obj
def init(options: Options, forge: str, runner: tuple[str, ...], prove: bool, force: bool, as_json: bool) -> None:
    """Write the workflow that runs `stack watch run` every night.

    It runs by its schedule and by hand. No pull request starts it, so a stranger's code never runs on your runner. Commit the file and
    push it to your default branch.
    """
    from stack.watch import workflow  # noqa: PLC0415

    del forge  # there is one so far
    written = workflow.write(options.find_root(), runner or (workflow.PLAIN,), prove=prove, force=force)
    if as_json:
        print_json({"path": str(written.path), "changed": written.changed})
    elif written.changed:
        say(f"wrote {written.path}")
        say("next: commit it and push it to your default branch")
        say("in the repository's settings, under Actions, General, allow GitHub Actions to create pull requests")
    else:
        say(f"{written.path} is up to date")


@contextlib.contextmanager
def _forge(own: "OwnRepository", *, reads: bool) -> "Iterator[Threads]":
    from stack.forge.github import GitHub  # noqa: PLC0415
    from stack.forge.threads import Threads  # noqa: PLC0415

    with progress() as told:
        github = GitHub(own.repository.host, told)
        try:
            if not reads:
                github.require_token()
            yield Threads(github, own.repository)
        finally:
            github.close()


def _report(stack: "Stack", forecasts: "Sequence[Forecast]") -> str:
    from stack.reporting import collect, history, markdown  # noqa: PLC0415

    made = collect.of_forecasts(stack, forecasts, made=int(time.time()))
    return markdown.render(history.included(made, stack.root, stack.lane))


def _print_watched(each: "Watched", *, dry_run: bool) -> None:
    if each.night is not None:
        for trial in each.night.trials:
            counts = ", ".join(f"{number} {outcome.value}" for outcome, number in trial.counts.items())
            say(f"{each.upstream} {trial.pinned} to {trial.revision}, lane {trial.lane}: {counts or 'no patches'}")
        if not each.night.trials:
            say(f"{each.upstream}: nothing newer")
        names = dict.fromkeys(row.name for _, row in each.night.open)
        if names:
            say(f"{counted(len(names), 'patch')} for a person: {', '.join(names)}")
    for write in each.writes:
        say(f"{'would ' if dry_run else ''}{write}")
    if not each.writes and each.problem is None:
        say(f"{each.upstream}: nothing to write")


def _watched_json(each: "Watched") -> dict[str, object]:
    return {
        "upstream": each.upstream,
        "needs_person": each.night is not None and each.night.needs_person,
        "trials": [
            {
                "lane": trial.lane,
                "aim": trial.aim.name.lower(),
                "pinned": trial.pinned,
                "revision": trial.revision,
                "outcomes": {outcome.value: number for outcome, number in trial.counts.items()},
                "open": [row.name for row in trial.open],
                "unmet": list(trial.unmet),
            }
            for trial in (each.night.trials if each.night is not None else ())
        ],
        "issue": each.issue,
        "pull": each.pull,
        "release": each.release,
        "writes": list(each.writes),
        "problem": str(each.problem) if each.problem is not None else None,
    }


def _standing_json(own: "OwnRepository", found: "Standing") -> dict[str, object]:
    runs = found.runs
    return {
        "repository": own.repository.shown,
        "needs_person": found.needs_person,
        "runs": None
        if runs is None
        else {
            "last": runs.began,
            "hours": runs.hours,
            "conclusion": runs.conclusion,
            "failures": runs.failures,
            "overdue": runs.overdue,
        },
        "upstreams": [
            {
                "upstream": issue.upstream,
                "issue": issue.number,
                "state": issue.state.value if issue.state is not None else None,
                "written": issue.written,
                "days": issue.days,
                "late": issue.late,
            }
            for issue in found.issues
        ],
    }


def _print_standing(own: "OwnRepository", found: "Standing") -> None:
    runs = found.runs
    if runs is None:
        say(f"{own.repository.shown} has no workflow that runs it:", "stack watch init")
    elif runs.began is None:
        say(f"the workflow of {own.repository.shown} has not run yet")
    else:
        how = runs.conclusion or "has not ended"
        say(f"last run {runs.began}, {counted(runs.hours or 0, 'hour')} ago: {how}")
        if runs.failures:
            say(f"{counted(runs.failures, 'run')} failed since the last good one")
        if runs.overdue:
            say("it is overdue: look at the workflow's page, and whether it is disabled")
    rows = [
        (
            issue.upstream,
            f"#{issue.number} {issue.state.value}" if issue.number is not None and issue.state is not None else "none",
            issue.written or "",
            "" if issue.days is None else counted(issue.days, "day"),
            "late" if issue.late else "",
        )
        for issue in found.issues
    ]
    print_table(("upstream", "issue", "written", "age", ""), rows)
