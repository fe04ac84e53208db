# SPDX-License-Identifier: Apache-2.0
"""Write the files with which a CI runs the jobs: a reusable workflow of GitHub, a template of GitLab."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stack import __version__
from stack.base.errors import StackError
from stack.forge import actions
from stack.matrix.formats import INSTALL
from stack.matrix.listing import Choice
from stack.matrix.templates import GITHUB, GITLAB
from stack.store import repository_files


class Forge(StrEnum):
    """A forge whose CI takes the jobs."""

    GITHUB = "github"
    GITLAB = "gitlab"


PLACES = {Forge.GITHUB: ".github/workflows/stack-matrix.yml", Forge.GITLAB: ".gitlab/stack-matrix.yml"}
"""The files, below the repository's folder."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_HOSTED = re.compile(r"(ubuntu|windows|macos)-[A-Za-z0-9._-]+")
_TRUSTED = 'contains(fromJSON(\'["push","schedule","workflow_dispatch","release"]\'), github.event_name)'
"""GitHub's events that a stranger cannot cause: no pull request, of a fork or not, and no comment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the files say: which jobs, the labels or the image of the runner for jobs that need no hardware, and the gates."""

    choice: Choice = field(default_factory=Choice)
    runner: tuple[str, ...] = ()
    image: str = ""
    gates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The file, and whether it is new or differs from what was there."""

    path: Path
    changed: bool


def write(root: Path, forge: Forge, plan: Plan, *, force: bool) -> Written:
    """Write the file of a forge into the repository of a stack.

    Raises:
        StackError: The stack is not in a git repository, the plan has a name that cannot stand in the file, or the file is there and
            differs and `force` is not set.

    """
    top, folder = repository_files.place(root)
    made = github(folder, plan) if forge is Forge.GITHUB else gitlab(folder, plan)
    return Written(top / PLACES[forge], repository_files.write(top, PLACES[forge], made, force=force))


def github(folder: str, plan: Plan) -> str:
    """Return the reusable workflow."""
    _check("--runner", plan.runner, _LABEL)
    _check("--gate", plan.gates, _LABEL)
    hosted = all(_HOSTED.fullmatch(label) for label in plan.runner)
    return GITHUB.format(
        folder=folder,
        version=__version__,
        checkout=actions.CHECKOUT,
        cache=actions.CACHE,
        upload=actions.UPLOAD,
        download=actions.DOWNLOAD,
        runner=plan.runner[0] if len(plan.runner) == 1 else json.dumps(list(plan.runner)),
        arguments=_arguments(plan.choice) + "".join(f" --runner {label}" for label in plan.runner),
        gates=" ".join(plan.gates),
        trusted=_TRUSTED,
        list_if="" if hosted else f"\n    if: {_TRUSTED} # the runner is your own",
    )


def gitlab(folder: str, plan: Plan) -> str:
    """Return the template, which a `.gitlab-ci.yml` includes."""
    _check("--image", (plan.image,), _IMAGE)
    _check("--gate", plan.gates, _LABEL)
    gates = "".join(f" --gate {gate}" for gate in plan.gates)
    install = "\n".join(f"    - {json.dumps(line)}" for line in (*INSTALL, f"cd './{folder}'"))
    return GITLAB.format(
        image=plan.image,
        install=install,
        folder=folder,
        arguments=f"{_arguments(plan.choice)} --image {plan.image}{gates}",
    )


def _arguments(choice: Choice) -> str:
    """Return the options of `stack matrix` that choose these jobs, with a blank before them."""
    named: list[tuple[str, Sequence[str]]] = [
        ("--only", [kind.value for kind in choice.only]),
        ("--lane", choice.lanes),
        ("--series", choice.series),
        ("--platform", choice.platforms),
        ("--hardware", choice.hardware),
        ("--group", [str(choice.group)] if choice.group > 1 else []),
        ("--python", [choice.python] if choice.python != Choice().python else []),
    ]
    words = [word for option, values in named for value in values for word in (option, value)]
    _check("an option", words, re.compile(r"[\w./~+-]+"))
    return "".join(f" {shlex.quote(word)}" for word in words)


def _check(option: str, values: Sequence[str], pattern: re.Pattern[str]) -> None:
    for value in values:
        if not pattern.fullmatch(value):
            raise StackError(f"{option} {value!r:.100} cannot stand in a file of a CI", "use letters, digits, dots and dashes")
