# SPDX-License-Identifier: Apache-2.0
"""The Python environment of proofs: the upstream's torch and a list of requirements, or its lock file.

The cache keeps one environment per torch version and list, since each takes gigabytes.
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.model.ids import TreeId
from stack.proof import requirements as lists
from stack.store import cache as places
from stack.store.objects import Objects

_COMPLETE = "complete"
_TORCH_FILES = ("requirements/cuda.txt",)


def torch_version(objects: Objects, tree: TreeId) -> str | None:
    """Return the torch version that an upstream's tree names; None if it names none."""
    for file in _TORCH_FILES:
        entry = objects.entry(tree, file)
        version = _exact(objects.read(entry.id).decode("utf-8", "replace")) if entry is not None else None
        if version is not None:
            return version
    return None


def named(requirements: Path) -> str | None:
    """Return the torch version that a list of requirements names; one environment then serves every release."""
    return _exact(requirements.read_text(encoding="utf-8"))


def _exact(text: str) -> str | None:
    """Return the exact version of torch in a list of requirements, or None."""
    for requirement in lists.parsed(text):
        exact = [spec.version for spec in requirement.specifier if spec.operator == "=="]
        if requirement.name == lists.TORCH and exact:
            return exact[0]
    return None


def python(torch: str, requirements: Path, cache: Path, tell: Progress = silent) -> Path:
    """Return the environment's interpreter; the first call makes it. `tell` receives a line per step.

    pip takes a CPU build for `torch==VERSION` if it finds one (`+cpu` counts as newer). Otherwise it takes the registry's build,
    which brings gigabytes of CUDA libraries and also runs on a CPU. A lock is installed as it stands. Without one, pip resolves
    the requirements while torch's version is fixed.

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


def listed(cache: Path, kind: str, requirements: Path, step: str, tell: Progress) -> Path:
    """Return the interpreter of an environment with a list of requirements, or its lock; `step` names the work for messages.

    Raises:
        StackError: pip could not install something, or the lock does not fit the requirements.

    """
    wanted = lists.wanted(requirements)
    return made(cache, f"{kind}-{wanted.key()}", {step: wanted.arguments}, tell)


def made(cache: Path, name: str, steps: Mapping[str, Sequence[str]], tell: Progress, python: str = sys.executable) -> Path:
    """Return the interpreter of an environment in the cache; the first call makes it with `python` and pip, step by step.

    Raises:
        StackError: pip could not install something.

    """
    folder = cache / "environments" / name
    interpreter = folder / "bin/python"
    with places.lock(folder):
        if not (folder / _COMPLETE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            tell(f"making the environment {name}")
            _run([python, "-m", "venv", str(folder)])
            for step, arguments in steps.items():
                tell(step)
                _run([str(interpreter), "-m", "pip", "install", "--quiet", *arguments])
            (folder / _COMPLETE).touch()
    return interpreter


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"`{' '.join(command[1:5])} …` failed: {first_error(done.stderr)}", "check the network and disk space")


def first_error(output: str) -> str:
    """Return the first line that pip marks as an error, else its last line."""
    lines = [line for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines()[-1:]
    return lines[0] if lines else "no message"
