# SPDX-License-Identifier: Apache-2.0
"""`stack matrix run`: run the jobs of a stack here or on a Ray cluster."""

from pathlib import Path
from typing import Any

import click

from stack.base.errors import StackError
from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table, progress
from stack.cli.matrix_options import choice_options, listed_jobs
from stack.cli.sentences import say, tell
from stack.matrix import formats, on_ray, running
from stack.matrix import local as here
from stack.matrix import log as logs
from stack.matrix.ended import Ended, Engine, State

_COLOURS = {"passed": "green", "kept": "green", "failed": "bold red", "lost": "bold red", "not here": "yellow"}


@click.command("run", short_help="Run the jobs here or on a Ray cluster.")
@choice_options
@click.option("--local", is_flag=True, help="Run them on this machine (default).")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="With --local: how many at once. Default: one per processor."
)
@click.option("--ray", "address", metavar="ADDRESS", help="Run them on the Ray cluster at this address, HOST:PORT.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="With --ray: repeat a job whose machine died up to N times elsewhere. Default: 2.",
)
@click.option("--again", is_flag=True, help="Run every job; ignore kept results.")
@json_option
@click.pass_context
def run(
    context: click.Context,
    /,
    local: bool,
    jobs: int | None,
    address: str | None,
    retries: int | None,
    again: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Run the jobs, and keep the result of each one that passes.

    A second run with the same inputs repeats only jobs that have not passed. So after a kill the next run goes on. A job's log is
    .stack/matrix/logs/JOB.log. Jobs for hardware that no machine has are not run. Exit code 1 if a job failed, and 2 if there is no job.

    On a Ray cluster, every machine needs the same version of this tool. The files of the stack are sent there; logs, verdicts, wheels and
    images are brought back. A label such as sm121 is a resource of a machine: ray start --resources '{"sm121": 1}'.
    """
    if address is not None and (local or jobs is not None):
        raise click.UsageError("--local and --jobs do not go with --ray")
    if address is None and retries is not None:
        raise click.UsageError("--retries goes with --ray")
    options: Options = context.obj
    stacks, listed = listed_jobs(options, choice)
    if not listed.jobs:
        raise StackError("the stack has no job to run", "see why: stack matrix")
    root = stacks[None].root
    ends: list[Ended] = []
    with (
        options.usable_cache() as home,
        running.alone(root, lambda: tell("waiting for another `stack matrix run` of this stack")) as held,
        progress() as told,
    ):
        engine: Engine = here.Local(root, home, here.here(jobs), held)
        if address is not None:
            its_cache = str(options.cache) if options.cache is not None else None
            engine = on_ray.Ray(root, address, its_cache, on_ray.RETRIES if retries is None else retries)
        for end in running.Run(stacks, home, again, told).jobs(listed.jobs, engine):
            ends.append(end)
    if as_json:
        print_json(
            {
                "jobs": [_ended_json(root, end) for end in ends],
                "grouped": listed.grouped,
                "left_out": [{"kind": each.kind.value, "why": each.why} for each in listed.left_out],
            }
        )
    else:
        _print_ends(root, ends)
    context.exit(1 if any(end.bad for end in ends) else 0)


def _ended_json(root: Path, end: Ended) -> dict[str, object]:
    log = logs.path(root, end.job)
    return {
        **formats.as_json(end.job),
        "state": end.state.value,
        "seconds": round(end.seconds, 1),
        "host": end.host or None,
        "exit_code": end.code,
        "why": end.why or None,
        "log": str(log) if log.is_file() else None,
    }


def _print_ends(root: Path, ends: list[Ended]) -> None:
    counts = {state: sum(end.state is state for end in ends) for state in State}
    shown = ", ".join(f"{count} {state.value}" for state, count in counts.items() if count)
    say(f"{counted(len(ends), 'job')}: {shown}")
    order = [*State].index
    rows = [
        (end.job.name, end.state.value, f"{end.seconds:.0f}" if end.seconds else "", end.host, end.why)
        for end in sorted(ends, key=lambda end: (not end.bad, order(end.state), end.job.name))
    ]
    print_table(("job", "", "seconds", "machine", ""), rows, colour=_COLOURS.get)
    say(f"logs: {root / '.stack/matrix/logs'}")
    verdicts = [output for end in ends if end.good for output in end.job.outputs if output.endswith(".json")]
    if verdicts:
        say("judge the verdicts:", f"stack verdict require --gate NAME {' '.join(verdicts)}")
