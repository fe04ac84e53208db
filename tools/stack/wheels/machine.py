# SPDX-License-Identifier: Apache-2.0
"""What this machine brings to a build: compilers, programs, processors, memory and disk space."""

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
    """Versions of compilers (None: not there), which programs are there, processors; free memory and disk in bytes.

    Without `cargo` vLLM builds no Rust frontend.
    """

    nvcc: Version | None
    gxx: Version | None
    programs: frozenset[str]
    processors: int
    memory: int
    disk: int
    cargo: Version | None = None

    @property
    def launcher(self) -> str | None:
        """What compilers are started through, so that what was compiled before is not again; vLLM prefers sccache, too."""
        return next((name for name in ("sccache", "ccache") if name in self.programs), None)


def look(folder: Path) -> Machine:
    """What is there; `folder` is where builds go, or will."""
    place = next(one for one in (folder, *folder.parents) if one.exists())
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
    """Those of some programs that are on PATH."""
    return (name for name in names if shutil.which(name))


def nvcc() -> str:
    """The nvcc that vLLM's build starts: that of CUDA_HOME, whichever is on PATH."""
    home = os.environ.get("CUDA_HOME")
    return str(Path(home) / "bin/nvcc") if home else "nvcc"


def gxx() -> Version | None:
    """The version of the C++ compiler that is on PATH, or named in CXX."""
    return _version(*compiler.cxx(), "-dumpfullversion", "-dumpversion", pattern=r"(\d+(?:\.\d+)*)")


def cmake(path: str) -> Version | None:
    """The version of the CMake on a PATH."""
    return _version("cmake", "--version", pattern=r"version (\d+\.\d+(?:\.\d+)?)", path=path)


def _version(program: str, *arguments: str, pattern: str, path: str | None = None) -> Version | None:
    place = shutil.which(program, path=path)
    if place is None:
        return None
    said = subprocess.run([place, *arguments], capture_output=True, text=True, check=False).stdout
    match = re.search(pattern, said)
    return Version(match[1]) if match else None
