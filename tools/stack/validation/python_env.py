# SPDX-License-Identifier: Apache-2.0
"""Where the packages are that are validated: on this machine, or in an image. Both start processes with them."""

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
"""What a process takes over from our own environment: settings of vLLM that a user has must not decide."""
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
    """What starts a process: its command, and its whole environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


class Python(Protocol):
    """Python with packages. What a process may read of this machine's folders is named in `lent`, by the same paths."""

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], lent: Sequence[Path] = ()) -> Process:
        """The interpreter with arguments."""
        ...


class Packages(Python, Protocol):
    """Packages that can serve, too."""

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], work: Path, lent: Sequence[Path] = ()) -> Process:
        """`vllm` with arguments; on this machine its caches lie in `work`."""
        ...


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter of this machine, with the whole environment of its user."""

    python: Path

    def __str__(self) -> str:
        return str(self.python)

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], _lent: Sequence[Path] = ()) -> Process:
        """The interpreter with arguments."""
        return Process((str(self.python), *arguments), {**os.environ, **variables})

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], _work: Path, lent: Sequence[Path] = ()) -> Process:
        """`vllm` with arguments; its caches are its user's."""
        return self.interpreter([*_SERVER, *arguments], variables, lent)


@dataclass(frozen=True, slots=True)
class Installed:
    """Packages on this machine: an interpreter, and folders before its own."""

    python: Path
    folders: tuple[Path, ...] = ()

    def interpreter(self, arguments: Sequence[str], variables: Mapping[str, str], _lent: Sequence[Path] = ()) -> Process:
        """Python with the packages; it may read what its user may."""
        return Process((str(self.python), *arguments), self._environment(variables))

    def server(self, arguments: Sequence[str], variables: Mapping[str, str], work: Path, lent: Sequence[Path] = ()) -> Process:
        """`vllm` with arguments. A patched build with the caches of another one loads what was compiled for that."""
        own = {"VLLM_CACHE_ROOT": str(work / "cache"), "HF_HOME": str(work / "hf"), "TMPDIR": str(work)}
        return self.interpreter([*_SERVER, *arguments], {**own, **variables}, lent)

    def _environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in _KEPT}
        return kept | dict(OFFLINE) | {"PYTHONPATH": os.pathsep.join(map(str, self.folders))} | dict(extra)


def run(packages: Python, code: str, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a few lines of Python with packages; `given` is its input."""
    process = packages.interpreter(["-c", code, *arguments], {})
    return subprocess.run(
        process.command, input=given, capture_output=True, text=True, check=False, env=dict(process.environment), cwd="/"
    )


def answer(done: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    """What these lines said as an object of strings: packages that are validated may say anything.

    Raises:
        ValueError: it is none.

    """
    try:
        said = json.loads(done.stdout)
    except RecursionError as deep:
        raise ValueError("nested too deep") from deep
    if not isinstance(said, dict) or not all(isinstance(one, str) for one in said.values()):
        raise ValueError("no object of strings")
    return said


def versions(packages: Python, *names: str) -> dict[str, str]:
    """The versions of packages, of those that are there.

    Raises:
        StackError: they cannot be asked.

    """
    done = run(packages, _VERSIONS, *names)
    if done.returncode:
        raise StackError(f"what is to be validated has no Python that runs: {done.stderr.strip()[-300:]}", "build it again")
    try:
        return answer(done)
    except ValueError as odd:
        raise StackError(
            f"Python in what is to be validated prints {done.stdout!r:.80} where versions are asked", "build it again"
        ) from odd
