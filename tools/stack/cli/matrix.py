# SPDX-License-Identifier: Apache-2.0
"""`stack matrix`: the jobs that show that a stack is good, for a CI's matrix, for this machine, or for a cluster."""

from typing import Any

import click
from click.core import ParameterSource

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table
from stack.cli.matrix_init import init
from stack.cli.matrix_options import IMAGE, RUNNER, choice_options, grouped_words, listed_jobs
from stack.cli.matrix_run import run
from stack.cli.sentences import say, tell
from stack.matrix import formats, listing
from stack.matrix.formats import Where
from stack.matrix.job import Job, Kind
from stack.store import repository_files


@click.group("matrix", invoke_without_command=True)
@choice_options
@click.option("--github", is_flag=True, help="Print the value of a `strategy.matrix` of GitHub, in one line.")
@click.option("--gitlab", is_flag=True, help="Print a child pipeline of GitLab.")
@click.option(
    "--where",
    type=click.Choice([where.value for where in Where]),
    default="all",
    show_default=True,
    help="Only the jobs for runners that the forge has (hosted), or for those with hardware of your own (own).",
)
@click.option(
    "--runner",
    multiple=True,
    metavar="LABEL",
    help=f"With --github: a label of the runner for jobs that need no hardware; repeatable. Default: {RUNNER}.",
)
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="NAME",
    help="With --gitlab: judge the collected verdicts by this gate of validation/gates.toml; repeatable.",
)
@click.option("--image", default=IMAGE, show_default=True, help="With --gitlab: the container for jobs that need no hardware.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    github: bool,
    gitlab: bool,
    where: str,
    runner: tuple[str, ...],
    gates: tuple[str, ...],
    image: str,
    as_json: bool,
    **choice: Any,
) -> None:
    """List the jobs that show that the stack is good: proofs, wheels, images, and suites by hardware.

    Each job has a command and what it needs of a machine. `run` runs them here or on a Ray cluster; `init` writes files with which a CI
    runs them. A list has at most 256 jobs: if it would have more, one job proves several series.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    if github and gitlab:
        raise click.UsageError("choose one of --github and --gitlab")
    if runner and not github:
        raise click.UsageError("--runner goes with --github")
    if gates and not gitlab:
        raise click.UsageError("--gate goes with --gitlab")
    options: Options = context.obj
    _, listed = listed_jobs(options, choice)
    jobs = formats.at(listed.jobs, Where(where))
    if (listed.grouped or 1) > choice["group"] and not as_json:
        tell(grouped_words(listed))
    if github:
        click.echo(formats.github(jobs, runner or (RUNNER,)))
    elif gitlab:
        click.echo(formats.gitlab(jobs, image, gates, repository_files.place(options.find_root())[1]), nl=False)
    elif as_json:
        print_json(
            {
                "jobs": [formats.as_json(job) for job in jobs],
                "grouped": listed.grouped,
                "left_out": [{"kind": each.kind.value, "why": each.why} for each in listed.left_out],
            }
        )
    else:
        _print_jobs(jobs, listed)


def _refuse_options(context: click.Context) -> None:
    """Refuse options between `matrix` and its subcommand, which would have no effect there."""
    for parameter in context.command.params:
        if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            option = parameter.opts[0]
            raise click.UsageError(f"write {option} behind {context.invoked_subcommand}")


def _print_jobs(jobs: tuple[Job, ...], listed: listing.Listed) -> None:
    counts = {kind: sum(job.kind is kind for job in jobs) for kind in Kind}
    shown = ", ".join(f"{kind.value} {count}" for kind, count in counts.items() if count)
    say(f"{counted(len(jobs), 'job')}: {shown}" if jobs else "no job")
    if jobs:
        print_table(("job", "needs", "minutes", "command"), [_row(job) for job in jobs])
    for each in listed.left_out:
        say(f"no job of {each.kind.value}: {each.why}")


def _row(job: Job) -> tuple[str, str, str, str]:
    needs = job.needs
    hardware = [*needs.labels, *([counted(needs.gpus, "GPU")] if needs.gpus else [])]
    words = ", ".join([counted(needs.cpus, "CPU"), f"{needs.memory} GB", *hardware])
    return job.name, words, "" if needs.minutes is None else f"{needs.minutes:g}", job.command


command.add_command(run)
command.add_command(init)
