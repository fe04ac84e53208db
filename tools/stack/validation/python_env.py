# SPDX-License-Identifier: Apache-2.0
"""Python environments under validation: on this machine or in an image. Both can start processes."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from stack.base.errors import StackError

OFFLINE = MappingProxyType(
    {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
)
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME")
"""The variables that a process inherits; a user's settings of vLLM must not affect a validation."""
_SERVER = ("-m", "vllm.entrypoints.cli.main")
_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Process:
    """The command and the whole environment of a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Python(Protocol):
    """Python with packages. `lent` names folders of this machine that a process may read, under the same paths."""

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path] = ()) -> Process:
        """Return the process of the interpreter with these arguments."""
        ...


class Packages(Python, Protocol):
    """Python with packages that can also serve."""

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], work: Path, lent: Sequence[Path] = ()) -> Process:
        """Return the process of `vllm` with these arguments; on this machine its caches are in `work`."""
        ...


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter of this machine, with the whole environment of its user."""

    python: Path

    def __str__(self) -> str:
        return str(self.python)

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], _lent: Sequence[Path] = ()) -> Process:
        """Return the process of the interpreter with these arguments."""
        return Process((str(self.python), *arguments), {**os.environ, **variables})

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], _work: Path, lent: Sequence[Path] = ()) -> Process:
        """Return the process of `vllm` with these arguments; it uses the user's caches."""
        return self.interpreter([*_SERVER, *arguments], variables, lent)


@dataclass(frozen=True, slots=True)
class Installed:
    """Packages on this machine: an interpreter, and folders that precede its own on the path."""

    python: Path
    folders: tuple[Path, ...] = ()

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], _lent: Sequence[Path] = ()) -> Process:
        """Return the process of the interpreter with the packages; it may read what its user may read."""
        return Process((str(self.python), *arguments), self._environment(variables))

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], work: Path, lent: Sequence[Path] = ()) -> Process:
        """Return the process of `vllm` with its own caches: with those of another build it would load that build's kernels."""
        own = {"VLLM_CACHE_ROOT": str(work / "cache"), "HF_HOME": str(work / "hf"), "TMPDIR": str(work)}
        return self.interpreter([*_SERVER, *arguments], {**own, **variables}, lent)

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in _KEPT}
        return kept | dict(OFFLINE) | {"PYTHONPATH": os.pathsep.join(map(str, self.folders))} | dict(extra)


def run(packages: Python, code: str, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a few lines of Python with packages; `given` is their input."""
    process = packages.interpreter(["-c", code, *arguments], {})
    return subprocess.run(
        process.command, input=given, capture_output=True, text=True, check=False, env=dict(process.environment), cwd="/"
    )


def answer(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """Parse the output of these lines as a JSON object of strings; validated packages may print anything.

    Raises:
        ValueError: it is not such an object.

    """
    try:
        printed = json.loads(done.stdout)
    except RecursionError as deep:
        raise ValueError("nested too deep") from deep
    if not isinstance(printed, dict) or not all(isinstance(value, str) for value in printed.values()):
        raise ValueError("not an object of strings")
    return printed


def versions(packages: Python, *names: str) -> dict[str, str]:
    """Find the versions of those packages that are installed.

    Raises:
        StackError: the interpreter does not run, or prints something else.

    """
    done = run(packages, _VERSIONS, *names)
    if done.returncode:
        raise StackError(f"Python does not run in the packages to be validated: {done.stderr.strip()[-300:]}", "build it again")
    try:
        return answer(done)
    except ValueError as odd:
        raise StackError(
            f"Python in the packages to be validated prints {done.stdout!r:.80} instead of versions", "build it again"
        ) from odd
