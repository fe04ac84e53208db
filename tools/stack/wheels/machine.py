# SPDX-License-Identifier: Apache-2.0
"""Determine what this machine has for a build: compilers, programs, processors, memory and disk space."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from stack.proof.compiling import compiler, jobs

PROGRAMS = ("cargo", "ccache", "cmake", "git", "ninja", "patch", "sccache")


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine: versions of compilers (None if missing), installed programs, processors, free memory and disk in bytes."""

    nvcc: Version | None
    gxx: Version | None
    programs: frozenset[str]
    processors: int
    memory: int
    disk: int
    cargo: Version | None = None

    @property
    def launcher(self) -> str | None:
        """The program that caches compilers' results, None if there is none; like upstream's build, prefer sccache."""
        return next((name for name in ("sccache", "ccache") if name in self.programs), None)


def look(folder: Path) -> Machine:
    """Look at the machine; `folder` is where builds are or will be."""
    place = next(candidate for candidate in (folder, *folder.parents) if candidate.exists())
    return Machine(
        nvcc=_version(nvcc(), "--version", pattern=r"release (\d+\.\d+)"),
        gxx=gxx(),
        programs=frozenset(found(PROGRAMS)),
        processors=len(os.sched_getaffinity(0)),
        memory=jobs.available_memory(),
        disk=shutil.disk_usage(place).free,
        cargo=_version("cargo", "--version", pattern=r"cargo (\d+(?:\.\d+)*)"),
    )


def found(names: Iterable[str]) -> Iterable[str]:
    """Return those of some programs that are on PATH."""
    return (name for name in names if shutil.which(name))


def nvcc() -> str:
    """Return the nvcc that a build starts: that of CUDA_HOME, even if another one is on PATH."""
    home = os.environ.get("CUDA_HOME")
    return str(Path(home) / "bin/nvcc") if home else "nvcc"


def gxx() -> Version | None:
    """Return the version of the C++ compiler on PATH, or of the one named in CXX."""
    return _version(*compiler.cxx(), "-dumpfullversion", "-dumpversion", pattern=r"(\d+(?:\.\d+)*)")


def cmake(path: str) -> Version | None:
    """Return the version of the CMake on a PATH."""
    return _version("cmake", "--version", pattern=r"version (\d+\.\d+(?:\.\d+)?)", path=path)


def _version(program: str, *arguments: str, pattern: str, path: str | None = None) -> Version | None:
    place = shutil.which(program, path=path)
    if place is None:
        return None
    output = subprocess.run([place, *arguments], capture_output=True, text=True, check=False).stdout
    match = re.search(pattern, output)
    return Version(match[1]) if match else None
