# SPDX-License-Identifier: Apache-2.0
"""The Python environment of proofs: a list of requirements, or its lock file, on the base package that the upstream names.

A base package, such as torch, is one that a project plug-in names. The cache keeps one environment per version of it and list,
since each can take gigabytes.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.model.ids import TreeId
from stack.projects import known
from stack.proof import requirements as lists
from stack.store import cache as places
from stack.store.objects import FOLDER, SUBMODULE, Objects

_COMPLETE = "complete"
_FORGES = {
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "GITLAB_TOKEN",
    "FORGEJO_TOKEN",
    "CI_JOB_TOKEN",
}
_SECRETS = frozenset({*_FORGES, "STACK_WATCH_TOKEN", "HF_TOKEN", "VLLM_API_KEY"})
"""Variables that no code of a package gets: pip runs what builds a source archive."""


@dataclass(frozen=True, slots=True)
class Base:
    """The exact version of a package that is installed first."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def of_tree(objects: Objects, tree: TreeId) -> Base | None:
    """Return the base package that an upstream's tree names; None if it names none.

    Raises:
        StackError: A project plug-in failed.

    """

    def read(path: str) -> bytes | None:
        entry = objects.entry(tree, path)
        return objects.read(entry.id) if entry is not None and entry.mode not in (FOLDER, SUBMODULE) else None

    names = known.base_packages()
    wanted = (item for item in known.required(read) if canonicalize_name(item.name) in names) if names else ()
    return next((Base(item.name, item.version) for item in wanted), None)


def named(requirements: Path, packages: Collection[str] | None = None) -> Base | None:
    """Return the base package that a list of requirements names; one environment then serves every release.

    `packages`: the names that count, instead of those of the project plug-ins.
    """
    names = known.base_packages() if packages is None else packages
    for requirement in lists.parsed(requirements.read_text(encoding="utf-8")):
        exact = [spec.version for spec in requirement.specifier if spec.operator == "=="]
        if canonicalize_name(requirement.name) in names and exact:
            return Base(requirement.name, exact[0])
    return None


def python(base: Base, requirements: Path, cache: Path, tell: Progress = silent) -> Path:
    """Return the environment's interpreter; the first call makes it. `tell` receives a line per step.

    For torch, pip takes a CPU build if it finds one (`+cpu` counts as newer). Otherwise it takes the registry's build, which brings
    gigabytes of CUDA libraries and also runs on a CPU. A lock is installed as it stands. Without one, pip resolves the requirements
    while the base package's version is fixed.

    Raises:
        StackError: pip could not install something, or the lock does not fit the requirements.

    """
    wanted = lists.wanted(requirements, (base.name,))
    steps = {
        f"installing {base.name} {base.version}": [str(base)],
        "installing what the proofs need": [*wanted.arguments, *([] if wanted.locked else [str(base)])],
    }
    return made(cache, f"{base.name}-{base.version}-{wanted.key(base.version)}", steps, tell)


def listed(cache: Path, kind: str, requirements: Path, step: str, tell: Progress) -> Path:
    """Return the interpreter of an environment with a list of requirements, or its lock; `step` names the work for messages.

    Raises:
        StackError: pip could not install something, or the lock does not fit the requirements.

    """
    wanted = lists.wanted(requirements, known.base_packages())
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


def drop_secrets() -> None:
    """Take every token out of this process's environment, before it starts code of an upstream."""
    for name in [name for name in os.environ if name in _SECRETS or name.endswith("_TOKEN")]:
        del os.environ[name]


def _run(command: list[str]) -> None:
    given = {name: value for name, value in os.environ.items() if name not in _SECRETS}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(f"`{' '.join(command[1:5])} …` failed: {first_error(done.stderr)}", "check the network and disk space")


def first_error(output: str) -> str:
    """Return the first line that pip marks as an error, else its last line."""
    lines = [line for line in output.splitlines() if line.startswith("ERROR")] or output.splitlines()[-1:]
    return lines[0] if lines else "no message"
