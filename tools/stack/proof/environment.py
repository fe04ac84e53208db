# SPDX-License-Identifier: Apache-2.0
"""The Python environment that proofs run in: the torch that the upstream names and a list of requirements, or its lock.

One environment is kept per torch version and list, in the cache: they take gigabytes.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.model.ids import TreeId
from stack.proof import requirements as lists
from stack.store import cache as places
from stack.store.objects import Objects

_COMPLETE = "complete"
_TORCH_FILES = ("requirements/cuda.txt",)


def torch_version(objects: Objects, tree: TreeId) -> str:
    """The torch version that an upstream's tree names.

    Raises:
        StackError: it names none.

    """
    for file in _TORCH_FILES:
        entry = objects.entry(tree, file)
        found = _exact(objects.read(entry.id).decode("utf-8", "replace")) if entry is not None else None
        if found is not None:
            return found
    raise StackError(f"the tree names no torch version in {', '.join(_TORCH_FILES)}", "proofs need one")


def named(requirements: Path) -> str | None:
    """The torch version that a list of requirements names itself: then one environment serves every release."""
    return _exact(requirements.read_text(encoding="utf-8"))


def _exact(text: str) -> str | None:
    """The one version of torch that a list of requirements allows."""
    for requirement in lists.parsed(text):
        exact = [spec.version for spec in requirement.specifier if spec.operator == "=="]
        if requirement.name == lists.TORCH and exact:
            return exact[0]
    return None


def python(torch: str, requirements: Path, cache: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """The interpreter of the environment; made on the first call. `tell` gets a line a step.

    `torch==VERSION` takes a CPU build where pip finds one (it counts as newer: `+cpu`), else the registry's, which brings
    several gigabytes of CUDA libraries and runs on a CPU, too. A lock of the requirements is installed as it stands; else pip
    resolves them, and is told to leave torch alone.

    Raises:
        StackError: pip could not install something, or the lock does not fit the requirements.

    """
    wanted = lists.wanted(requirements)
    exact = f"{lists.TORCH}=={torch}"
    steps = {
        f"installing torch {torch}": [exact],
        "installing what the proofs need": [*wanted.arguments, *([] if wanted.locked else [exact])],
    }
    return made(cache, f"torch-{torch}-{wanted.key(torch)}", steps, tell)


def listed(cache: Path, kind: str, requirements: Path, step: str, tell: Callable[[str], None]) -> Path:
    """The interpreter of an environment with what a list of requirements, or its lock, names; `step` says what is installed.

    Raises:
        StackError: pip could not install something, or the lock does not fit the requirements.

    """
    wanted = lists.wanted(requirements)
    return made(cache, f"{kind}-{wanted.key()}", {step: wanted.arguments}, tell)


def made(cache: Path, name: str, steps: Mapping[str, Sequence[str]], tell: Callable[[str], None]) -> Path:
    """The interpreter of an environment of the cache; made on the first call, by what pip installs in each step.

    Raises:
        StackError: pip could not install something.

    """
    folder = cache / "environments" / name
    interpreter = folder / "bin/python"
    with places.lock(folder):
        if not (folder / _COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            tell(f"making the environment {name}")
            _run([sys.executable, "-m", "venv", str(folder)])
            for step, arguments in steps.items():
                tell(step)
                _run([str(interpreter), "-m", "pip", "install", "--quiet", *arguments])
            (folder / _COMPLETE).touch()
    return interpreter


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"`{' '.join(command[1:5])} …` failed: {first_error(done.stderr)}", "check the network and disk space")


def first_error(said: str) -> str:
    """What pip calls an error, else its last line."""
    lines = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()[-1:]
    return lines[0] if lines else "no message"
