# SPDX-License-Identifier: Apache-2.0
"""How an upstream's wheel is made: which changes need compilers, and how its own build is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version


def _nothing() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths, or folders with a trailing slash: compiled code, sources compiled at run time, and files that only cause a warning."""

    compiled: tuple[str, ...] = ()
    jit: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainBuild:
    """A build without a compiler: its backend's environment variables, and the line with its version."""

    environment: Mapping[str, str]
    version_file: str
    version_line: str
    """With `{}` for the version."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The requirements of a device.

    Attributes:
        gxx: the oldest g++.
        disk: free disk space in bytes.
        memory: what one compiler takes at most, in bytes.
        cloning: the tree's files, or folders with a trailing slash, whose CMake clones repositories.
        programs: programs that have to be on PATH.
        cuda: whether nvcc compiles for the device.

    """

    gxx: "Version"
    disk: int
    memory: int
    cloning: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class CompiledBuild:
    """A build with compilers, by the upstream's own backend, or of single targets by its CMake.

    Attributes:
        device: the environment variable that names the device.
        version: the environment variable that names the version.
        needs: the requirements of each device, by upstream's name of it. The first device is the default.
        options: CMake's options beside the usual ones; `{device}` and `{python}` stand for the device and the interpreter.
        defines: a regular expression whose first group is a CMake target that makes a library.
        parts: parts of the result that are left out where a program is not on PATH, by program.
        base: the package that CMake alone needs in the environment, and that has to be built for the same CUDA as nvcc.
        base_cuda: Python code that prints, as JSON, the CUDA version that this package is built for.
        cuda: environment variables of a build for CUDA, with values that the user's environment overrides.
        cuda_options: those of `cuda` that are CMake options, too.
        architectures: the one of `cuda` that names the GPUs' architectures.

    """

    device: str
    version: str
    needs: Mapping[str, Needs]
    options: Mapping[str, str] = field(default_factory=_nothing)
    defines: str = r"add_library\(\s*(\w+)"
    parts: Mapping[str, str] = field(default_factory=_nothing)
    base: str = ""
    base_cuda: str = "print('null')"
    cuda: Mapping[str, str] = field(default_factory=_nothing)
    cuda_options: tuple[str, ...] = ()
    architectures: str = ""

    @property
    def default(self) -> str:
        """The device that is built by default."""
        return next(iter(self.needs))


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of METADATA: requirements to leave out, and requirements to strip of their local version (`torch==2.13.0+cpu`)."""

    without: tuple[str, ...] = ()
    public: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WheelRules:
    """How an upstream's wheel is made.

    Attributes:
        changes: how the files of a patch count; None if their names decide.
        plain: the build without a compiler, if there is one.
        compiled: the build with compilers, if there is one.
        edits: what is edited in copies of other published packages, by their normalised name.
        decides: a regular expression for the names of environment variables that affect a compiled result.
        ready_made: part of the names of variables that would bring precompiled files into a build; these are not passed.

    """

    changes: Changes | None = None
    plain: PlainBuild | None = None
    compiled: CompiledBuild | None = None
    edits: Mapping[str, Edits] = field(default_factory=lambda: MappingProxyType({}))
    decides: str = ""
    ready_made: str = ""
