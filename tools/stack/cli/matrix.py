# SPDX-License-Identifier: Apache-2.0
"""`stack matrix`: the jobs that show that a stack is good, for a CI's matrix, for this machine, or for a cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stack.base.text import counted
from stack.cli.common import Options, json_option, print_json, print_table, progress
from stack.cli.completing import complete_series
from stack.cli.sentences import say, tell
from stack.matrix import ci, formats, kept, listing, sky
from stack.matrix.ended import Ended, Engine, State, log_of
from stack.matrix.formats import Where
from stack.matrix.job import MOST, Job, Kind
from stack.model import lanes
from stack.store import cache

if TYPE_CHECKING:
    from stack.model.stack import Stack

_COLOURS = {"passed": "green", "kept": "green", "failed": "bold red", "lost": "bold red", "not here": "yellow"}
RUNNER = "ubuntu-24.04"
"""The runner for jobs that need no hardware, one of GitHub's own."""
IMAGE = "python:3.12"
"""The container for them on GitLab."""
_CHOICE = (
    click.option(
        "--only",
        multiple=True,
        type=click.Choice([kind.value for kind in Kind]),
        help="Only jobs of this kind; repeatable.",
    ),
    click.option("--lane", "lane_names", multiple=True, metavar="NAME", help="Only this lane; main: no lane; repeatable."),
    click.option(
        "--series",
        multiple=True,
        metavar="NAME",
        shell_complete=complete_series,
        help="Only proofs of this series; repeatable.",
    ),
    click.option(
        "--platform",
        "platforms",
        multiple=True,
        metavar="NAME",
        help="A job of wheels and one of an image for this platform, such as x86_64 or aarch64; repeatable. Default: one job for all.",
    ),
    click.option(
        "--hardware",
        multiple=True,
        metavar="LABEL",
        help="The suites for this hardware: cpu, or a GPU such as sm121; repeatable. Default: those of validation/gates.toml.",
    ),
    click.option(
        "--python",
        default="python3",
        show_default=True,
        metavar="FILE",
        help="The interpreter on machines with a GPU for which the stack's wheels are installed.",
    ),
    click.option(
        "--group",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="Prove N series in one job: each job starts a machine.",
    ),
)


def _choice_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_CHOICE):
        function = option(function)
    return function


def _choice(given: dict[str, Any]) -> listing.Choice:
    """Return the choice of the options of `_CHOICE`."""
    return listing.Choice(
        tuple(Kind(name) for name in given["only"]),
        given["lane_names"],
        given["series"],
        given["platforms"],
        given["hardware"],
        given["python"],
        given["group"],
    )


@click.group("matrix", invoke_without_command=True)
@_choice_options
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
    _, listed = _listed(options, choice)
    jobs = formats.at(listed.jobs, Where(where))
    if (listed.grouped or 1) > choice["group"] and not as_json:
        tell(_grouped(listed))
    if github:
        click.echo(formats.github(jobs, runner or (RUNNER,)))
    elif gitlab:
        click.echo(formats.gitlab(jobs, image, gates, ci.place(options.find_root())[1]), nl=False)
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


def _listed(options: Options, choice: dict[str, Any]) -> "tuple[dict[str | None, Stack], listing.Listed]":
    root = options.find_root()
    stacks = lanes.carried(root)
    listed = listing.jobs(stacks, _choice(choice))
    home = cache.root(options.cache)
    timed = tuple(kept.Shelf(home, stacks[job.lane]).timed(job) for job in listed.jobs)
    return stacks, listing.Listed(timed, listed.left_out, listed.grouped)


def _grouped(listed: listing.Listed) -> str:
    return f"a job proves up to {listed.grouped} series, since a list has at most {MOST} jobs"


def _print_jobs(jobs: tuple[Job, ...], listed: listing.Listed) -> None:
    counts = {kind: sum(job.kind is kind for job in jobs) for kind in Kind}
    shown = ", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count)
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


@command.command(short_help="Run the jobs here or on a Ray cluster.")
@_choice_options
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
    .stack/matrix/logs/JOB.log. Jobs for hardware that no machine has are not run. Exit code 1 if a job failed.

    On a Ray cluster, every machine needs the same version of this tool. The files of the stack are sent there; logs, verdicts, wheels and
    images are brought back. A label such as sm121 is a resource of a machine: ray start --resources '{"sm121": 1}'.
    """
    from stack.matrix import local as here  # noqa: PLC0415
    from stack.matrix import on_ray, running  # noqa: PLC0415

    if address is not None and (local or jobs is not None):
        raise click.UsageError("--local and --jobs do not go with --ray")
    if address is None and retries is not None:
        raise click.UsageError("--retries goes with --ray")
    options: Options = context.obj
    stacks, listed = _listed(options, choice)
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


@command.command(short_help="Write a file with which a CI runs the jobs.")
@_choice_options
@click.option("--github", "forge", flag_value="github", default="github", help="A reusable workflow of GitHub (default).")
@click.option("--gitlab", "forge", flag_value="gitlab", help="A template of GitLab.")
@click.option(
    "--sky",
    "gpu",
    metavar="GPU",
    help="A task of SkyPilot that runs the archive of `stack validate pack --gpu GPU` on a rented one: sm90.",
)
@click.option(
    "--runner",
    multiple=True,
    metavar="LABEL",
    help=f"With --github: a label of the runner for jobs that need no hardware; repeatable. Default: {RUNNER}.",
)
@click.option("--image", default=IMAGE, show_default=True, help="With --gitlab: the container for jobs that need no hardware.")
@click.option(
    "--gate",
    "gates",
    multiple=True,
    metavar="NAME",
    help="A gate of validation/gates.toml that the collected verdicts have to pass; repeatable.",
)
@click.option("--force", is_flag=True, help="Replace the file if it differs.")
@json_option
@click.pass_obj
def init(
    options: Options,
    /,
    forge: str,
    gpu: str | None,
    runner: tuple[str, ...],
    image: str,
    gates: tuple[str, ...],
    force: bool,
    as_json: bool,
    **choice: Any,
) -> None:
    """Write the file with which a CI runs the jobs, one machine for each.

    It runs nothing on hardware of your own for a pull request: a stranger's code would run there. At the end, `stack verdict require`
    judges the verdicts by each --gate. Commit the file, and call it from a workflow of yours.
    """
    if gpu is not None:
        path, changed = sky.write(options.find_root(), gpu, force=force)
        _print_written(path, changed, "run the commands in its first lines", as_json=as_json)
        return
    _, listed = _listed(options, choice)
    if (listed.grouped or 1) > choice["group"] and not as_json:
        tell(_grouped(listed))
    plan = ci.Plan(_choice(choice), runner or (RUNNER,), image, gates)
    written = ci.write(options.find_root(), ci.Forge(forge), plan, force=force)
    _print_written(written.path, written.changed, "commit it, and call it as its first lines show", as_json=as_json)


def _print_written(path: Path, changed: bool, then: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(path), "changed": changed})
    elif changed:
        say(f"wrote {path}")
        say(f"next: {then}")
    else:
        say(f"{path} is up to date")


def _ended_json(root: Path, end: Ended) -> dict[str, object]:
    log = log_of(root, end.job)
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
