# SPDX-License-Identifier: Apache-2.0
"""The options of `stack matrix` and its subcommands that choose jobs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from stack.cli.common import Options
from stack.cli.completing import complete_series
from stack.matrix import kept, listing
from stack.matrix.job import MOST, Kind
from stack.model import lanes
from stack.store import cache

if TYPE_CHECKING:
    from stack.model.stack import Stack

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


def choice_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that choose jobs."""
    for option in reversed(_CHOICE):
        function = option(function)
    return function


def choice_of(given: dict[str, Any]) -> listing.Choice:
    """Return the choice that the options of `choice_options` make."""
    return listing.Choice(
        tuple(Kind(name) for name in given["only"]),
        given["lane_names"],
        given["series"],
        given["platforms"],
        given["hardware"],
        given["python"],
        given["group"],
    )


def listed_jobs(options: Options, choice: dict[str, Any]) -> "tuple[dict[str | None, Stack], listing.Listed]":
    """List the chosen jobs, with the minutes that each took last; also return the stack as each lane sees it."""
    root = options.find_root()
    stacks = lanes.carried(root)
    listed = listing.jobs(stacks, choice_of(choice))
    home = cache.root(options.cache)
    timed = tuple(kept.Shelf(home, stacks[job.lane]).timed(job) for job in listed.jobs)
    return stacks, listing.Listed(timed, listed.left_out, listed.grouped)


def grouped_words(listed: listing.Listed) -> str:
    """Say that one job proves several series."""
    return f"a job proves up to {listed.grouped} series, since a list has at most {MOST} jobs"
