# SPDX-License-Identifier: Apache-2.0
"""Hash what the result of a job depends on: its command, files of the stack, and this tool."""

import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from stack.matrix.job import Job, Kind
from stack.model import lane_files
from stack.model.ids import Sha256
from stack.model.stack import FOLDER, RESOLUTIONS, Stack
from stack.proof import pytest_run, sources
from stack.store import results

_PACKAGE = Path(__file__).parents[1]
_READ = {
    Kind.WHEELS: ("kernels", "sources"),
    Kind.IMAGES: ("kernels", "sources", "docker", "requirements", "validation"),
    Kind.KERNELS: ("kernels", "sources", "validation"),
    Kind.SERVERS: ("kernels", "sources", "validation"),
}
"""Folders of the stack that a job reads, beside the pins and `stacks/`."""
_BESIDE = ("conftest.py", pytest_run.PRELOAD, "requirements.txt", "requirements.lock")
"""Files beside a proof that it reads."""


def key(stack: Stack, job: Job) -> Sha256:
    """Hash the inputs of a job, in the stack of its lane.

    The machine is not part of it: a job says what it needs, and any machine that has this is as good as another.
    """
    root = stack.root.resolve()
    files = {*_files(root, job.lane), *(_proof_files(stack, job) if job.kind is Kind.PROOFS else _folders(root, job.kind))}
    return results.key(
        {
            "command": job.command,
            "pins": repr((stack.pins.upstreams, stack.pins.base)),
            "files": sources.digest(files, root),
            "tool": _tool(),
            "variables": repr(sorted(pytest_run.variables(of_key=True).items())),
        }
    )


def _files(root: Path, lane: str | None) -> Iterator[Path]:
    """Yield the files below `stacks/` that a lane reads."""
    every, own = lane_files.FOLDER, lane_files.FOLDER + f"/{lane}"
    for file in _below(root / FOLDER):
        path = file.relative_to(root).as_posix()
        elsewhere = path.startswith(f"{every}/") and not path.startswith(f"{own}/")
        if not elsewhere and not path.startswith(f"{FOLDER}/{RESOLUTIONS}/"):
            yield file


def _folders(root: Path, kind: Kind) -> Iterator[Path]:
    for name in _READ[kind]:
        yield from _below(root / name)


def _proof_files(stack: Stack, job: Job) -> Iterator[Path]:
    """Yield the proofs of a job's series, what they import, and the files that they name."""
    root = stack.root.resolve()
    chosen = [stack.get(name) for name in job.series]
    named = [root / path for series in chosen for path in series.proves]
    named += [root / path for series in chosen for command in series.commands for path in command.paths]
    named.append(root / "pyproject.toml")  # it may have pytest's options
    named += [root / command.requirements for series in chosen for command in series.commands if command.requirements]
    for path in named:
        yield from _below(path) if path.is_dir() else [path]
    modules = {*named, *(path.parent / name for path in named for name in _BESIDE)}
    for module in sorted(modules):
        if module.is_file():
            yield from sources.closure([module], (module.parent, root, root / "tools", root / "kernels"))


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder; compiled ones and those of tools do not count, and links are not followed."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        yield from (Path(place, name) for name in sorted(names) if not name.startswith("."))


@functools.cache
def _tool() -> str:
    """Hash the code of this tool and the version of its Python."""
    whole = hashlib.sha256(sys.version.encode())
    for file in _code(_below(_PACKAGE)):
        whole.update(f"{file.relative_to(_PACKAGE).as_posix()}\0".encode() + file.read_bytes())
    return whole.hexdigest()


def _code(files: Iterable[Path]) -> Iterator[Path]:
    """Leave out the engines of this package: who runs a job does not change its result."""
    own = Path(__file__).parent
    yield from (file for file in files if file.parent != own)
