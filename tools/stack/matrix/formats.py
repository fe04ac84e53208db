# SPDX-License-Identifier: Apache-2.0
"""Write the list of jobs as a CI takes it: a matrix of GitHub, a child pipeline of GitLab."""

import json
import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import yaml

from stack import __version__
from stack.matrix.job import Job, Kind
from stack.matrix.listing import VERDICTS

OWN = ("self-hosted",)
"""The labels that GitHub gives every runner of your own; those of the hardware come behind them."""
INSTALL = (
    'stack_env=$(mktemp -d) && python3 -m venv "$stack_env" && . "$stack_env/bin/activate"',
    f"python3 -m pip install --quiet git-carry=={__version__}",
)
"""Shell commands that install this tool for a job of GitLab."""
_EXPIRES = "1 week"
_KEYWORDS = frozenset(
    {
        *(
            "after_script",
            "before_script",
            "cache",
            "default",
            "image",
            "include",
            "pages",
            "services",
            "spec",
            "stages",
            "types",
        ),
        *("variables", "workflow"),
    }
)
"""Names that GitLab takes for something else than a job."""


class Where(StrEnum):
    """Which runners a job is for: `hosted` are those of the forge or any of your own, `own` are those with hardware of yours."""

    ALL = "all"
    HOSTED = "hosted"
    OWN = "own"


def at(jobs: Sequence[Job], where: Where) -> tuple[Job, ...]:
    """Choose the jobs for some runners."""
    return tuple(job for job in jobs if where is Where.ALL or bool(job.needs.labels) == (where is Where.OWN))


def as_json(job: Job) -> dict[str, Any]:
    """Return a job as a document has it."""
    needs = job.needs
    return {
        "name": job.name,
        "kind": job.kind.value,
        "lane": job.lane,
        "command": job.command,
        "needs": {
            "cpus": needs.cpus,
            "memory": needs.memory,
            "gpus": needs.gpus,
            "labels": list(needs.labels),
            "minutes": needs.minutes,
        },
        "outputs": list(job.outputs),
    }


def github(jobs: Sequence[Job], runner: Sequence[str]) -> str:
    """Return the jobs as a value of `strategy.matrix`, in one line.

    Args:
        jobs: The jobs.
        runner: The labels of the runner for jobs that need no hardware.

    """
    include = [
        {
            "name": job.name,
            "kind": job.kind.value,
            "command": job.command,
            "runner": [*OWN, *job.needs.labels] if job.needs.labels else list(runner),
            "outputs": "\n".join(job.outputs),
        }
        for job in jobs
    ]
    return json.dumps({"include": include}, separators=(",", ":"))


def gitlab(jobs: Sequence[Job], image: str, gates: Sequence[str], folder: str = "") -> str:
    """Return the jobs as a child pipeline.

    Args:
        jobs: The jobs.
        image: The container image of jobs that need no hardware.
        gates: The gates by which the collected verdicts are judged at the end.
        folder: The stack's folder in its repository, with a slash at its end; empty for the repository itself.

    """
    pipeline: dict[str, Any] = {
        "stages": ["jobs", "verdict"],
        "default": {"before_script": [*INSTALL, *([f"cd './{folder}'"] if folder else [])]},
        **{_gitlab_name(job): _gitlab_job(job, image, folder) for job in jobs},
    }
    judged = [_gitlab_name(job) for job in jobs if job.kind in (Kind.KERNELS, Kind.SERVERS)]
    if gates and judged:
        pipeline["verdict"] = {
            "stage": "verdict",
            "image": image,
            "needs": judged,
            "script": [f"stack verdict require --gate {shlex.quote(gate)} {VERDICTS}/*.json" for gate in gates],
        }
    elif not jobs:
        pipeline["nothing"] = {"stage": "jobs", "image": image, "before_script": [], "script": ["echo no job"]}
    return yaml.safe_dump(pipeline, sort_keys=False, width=1000)


def _gitlab_name(job: Job) -> str:
    return f"{job.name}-job" if job.name in _KEYWORDS else job.name


def _gitlab_job(job: Job, image: str, folder: str) -> dict[str, Any]:
    made: dict[str, Any] = {"stage": "jobs", "script": [job.command]}
    made |= {"tags": list(job.needs.labels)} if job.needs.labels else {"image": image}
    if job.outputs:
        made["artifacts"] = {"paths": [f"{folder}{output}" for output in job.outputs], "when": "always", "expire_in": _EXPIRES}
    return made
