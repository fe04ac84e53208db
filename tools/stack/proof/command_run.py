# SPDX-License-Identifier: Apache-2.0
"""Run a proof that is a command, in the folder of a tree."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.model.proof_command import ProofCommand
from stack.proof import environment, pytest_run, sources
from stack.proof import requirements as lists
from stack.proof.pytest_run import Case, Run

ROOT = "STACK_ROOT"
"""Variable in a command's environment: the stack's folder, where its `paths` are."""
_PRINTED = 100_000
"""Bytes of a command's output that are read, from the end."""
_NOT_STARTED = {126: "cannot be executed", 127: "is not there"}
"""Exit statuses of a shell whose program did not start."""


def run(command: ProofCommand, folder: Path, python: Path, root: Path) -> Run:
    """Run a command in the folder of a tree, in a shell.

    The command passes with exit status 0 and fails with any other. It has no result if its program is missing, or if it was killed
    or took too long; the command and all that it started are ended then.
    """
    started = time.monotonic()
    with tempfile.TemporaryFile(prefix="stack-") as output:
        wrapped = [sys.executable, die_with_parent.__file__, str(os.getpid()), "sh", "-c", command.run]
        process = subprocess.Popen(
            wrapped,
            cwd=folder,
            env=_variables(folder, python, root),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status, broken = process.wait(command.seconds), ""
        except subprocess.TimeoutExpired:
            status, broken = -signal.SIGKILL, f"it took longer than {command.seconds} s"
        finally:
            if process.poll() is None:
                process.terminate()  # the wrapper then ends all that the command started
                process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - _PRINTED))
        printed = output.read().decode("utf-8", "replace")
    broken = broken or _broken(command, status)
    case = Case(command.run, "passed" if status == 0 else "failed", round(time.monotonic() - started, 3))
    # As pytest does, so that a settled run is one that may be kept: 1 for any failure.
    return Run(() if broken else (case,), printed, min(1, status) if status >= 0 else status, broken)


def interpreter(command: ProofCommand, root: Path, cache: Path, tell: Progress) -> Path:
    """Return the interpreter for a command: that of an environment of its own if it names packages or a version of Python.

    Raises:
        StackError: The interpreter is missing, or the environment cannot be made.

    """
    if command.requirements is None and command.python is None:
        return Path(sys.executable)
    python = _of_version(command.python)
    name, arguments = f"command-{command.python or 'own'}", []
    if command.requirements is not None:
        file = root / command.requirements
        if not file.is_file():
            raise StackError(f"{file} is missing", f"`{command.run}` names it as requirements")
        wanted = lists.wanted(file)
        name, arguments = f"{name}-{wanted.key()}", [*wanted.arguments]
    steps = {"installing what the command needs": arguments} if arguments else {}
    return environment.made(cache, name, steps, tell, python)


def key(command: ProofCommand, root: Path) -> Mapping[str, str]:
    """Return what a command's result depends on beside tree, interpreter and machine."""
    files = [file for path in command.paths for file in _files(root / path)]
    return {"command": command.run, "seconds": str(command.seconds), "paths": sources.digest(files, root)}


def _files(path: Path) -> list[Path]:
    return [file for file in sorted(path.rglob("*")) if file.is_file()] if path.is_dir() else [path]


def _of_version(version: str | None) -> str:
    if version is None or version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    found = shutil.which(f"python{version}")
    if found is None:
        raise StackError(f"python{version} is not on PATH", "install it, or name another version in the series' proves")
    return found


def _variables(folder: Path, python: Path, root: Path) -> dict[str, str]:
    seen = pytest_run.variables()
    own = {pytest_run.MARK: str(folder), ROOT: str(root)}
    if python != Path(sys.executable):
        own |= {"PATH": f"{python.parent}{os.pathsep}{seen.get('PATH', os.defpath)}", "VIRTUAL_ENV": str(python.parent.parent)}
    return seen | own


def _broken(command: ProofCommand, status: int) -> str:
    """Return why a command has no result, judged by a shell's exit status; empty if it has one."""
    if status in _NOT_STARTED:
        return f"`{command.run}`: its program {_NOT_STARTED[status]} (exit status {status})"
    number = -status if status < 0 else status - 128
    if status < 0 or (status > 128 and number in set(signal.Signals)):
        return f"`{command.run}` was ended by {signal.Signals(number).name}"
    return ""
