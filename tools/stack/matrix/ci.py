# SPDX-License-Identifier: Apache-2.0
"""Write the files with which a CI runs the jobs: a reusable workflow of GitHub, a template of GitLab."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from stack import __version__
from stack.base import files
from stack.base.errors import StackError
from stack.matrix.formats import INSTALL
from stack.matrix.listing import Choice
from stack.matrix.templates import GITHUB, GITLAB
from stack.store import git


class Forge(StrEnum):
    """A forge whose CI takes the jobs."""

    GITHUB = "github"
    GITLAB = "gitlab"


PLACES = {Forge.GITHUB: ".github/workflows/stack-matrix.yml", Forge.GITLAB: ".gitlab/stack-matrix.yml"}
"""The files, below the repository's folder."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_FOLDER = re.compile(r"(?:[A-Za-z0-9._-]+/)*")
_HOSTED = re.compile(r"(ubuntu|windows|macos)-[A-Za-z0-9._-]+")
_TRUSTED = 'contains(fromJSON(\'["push","schedule","workflow_dispatch","release"]\'), github.event_name)'
"""GitHub's events that a stranger cannot cause: no pull request, of a fork or not, and no comment."""
_CHECKOUT = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0"
_CACHE = "actions/cache@0057852bfaa89a56745cba8c7296529d2fc39830 # v4.3.0"
_UPLOAD = "actions/upload-artifact@bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0"
_DOWNLOAD = "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1"


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
    top, folder = place(root)
    made = (github(folder, plan) if forge is Forge.GITHUB else gitlab(folder, plan)).encode()
    *folders, name = PLACES[forge].split("/")
    with files.opened(top) as opened, opened.below(*folders, create=True) as there:
        before = there.read(name)
        if before is not None and before != made and not force:
            raise StackError(f"{top / PLACES[forge]} is there and differs", "look at it, then use --force to replace it")
        if before != made:
            there.write(f".{name}.part", made)
            there.move(f".{name}.part", there, name)
    return Written(top / PLACES[forge], before != made)


def place(root: Path) -> tuple[Path, str]:
    """Return the folder of the repository, and the stack's folder below it with a slash at its end; empty for the same.

    Raises:
        StackError: The stack is not in a git repository, or the folder's name cannot stand in a file of a CI.

    """
    shown = git.run(["rev-parse", "--show-toplevel", "--show-prefix"], cwd=root, accept=(0, 128))
    if shown.returncode:
        raise StackError(f"{root} is not in a git repository", "run `git init` there, or clone your repository")
    top, _, folder = os.fsdecode(shown.stdout).removesuffix("\n").partition("\n")
    if not _FOLDER.fullmatch(folder):
        raise StackError(f"the stack's folder {folder!r} has characters that a workflow cannot hold", "move it to a plain name")
    return Path(top), folder


def github(folder: str, plan: Plan) -> str:
    """Return the reusable workflow."""
    _check("--runner", plan.runner, _LABEL)
    _check("--gate", plan.gates, _LABEL)
    hosted = all(_HOSTED.fullmatch(label) for label in plan.runner)
    return GITHUB.format(
        folder=folder,
        version=__version__,
        checkout=_CHECKOUT,
        cache=_CACHE,
        upload=_UPLOAD,
        download=_DOWNLOAD,
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
