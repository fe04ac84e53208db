# SPDX-License-Identifier: Apache-2.0
"""The Python environment that proofs run in: the torch that the upstream names and a list of requirements.

One environment is kept per torch version and list, in the cache: they take gigabytes.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from stack.model.errors import StackError
from stack.model.ids import TreeId
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
    for line in text.splitlines():
        try:
            requirement = Requirement(line.partition(" #")[0].strip())
        except InvalidRequirement:
            continue
        exact = [spec.version for spec in requirement.specifier if spec.operator == "=="]
        if requirement.name == "torch" and exact:
            return exact[0]
    return None


def python(torch: str, requirements: Path, cache: Path, tell: Callable[[str], None] = lambda _: None) -> Path:
    """The interpreter of the environment; made on the first call. `tell` gets a line a step.

    `torch==VERSION` takes a CPU build where pip finds one (it counts as newer: `+cpu`), else the registry's, which brings
    several gigabytes of CUDA libraries and runs on a CPU, too.

    Raises:
        StackError: pip could not install something.

    """
    key = hashlib.sha256(f"{sys.version_info[:2]} {torch} {requirements.read_text()}".encode()).hexdigest()[:12]
    steps = {
        f"installing torch {torch}": [f"torch=={torch}"],
        "installing what the proofs need": ["-r", str(requirements), f"torch=={torch}"],
    }
    return made(cache, f"torch-{torch}-{key}", steps, tell)


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
