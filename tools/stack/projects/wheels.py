# SPDX-License-Identifier: Apache-2.0
"""How an upstream's wheel is made: which changes need compilers, and how its own build is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

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
    """The requirements of a device: the oldest g++, free disk space in bytes, and the tree's files that clone repositories.

    `cuda` says that nvcc compiles for the device. `memory` is what one compiler takes at most, in bytes.
    """

    gxx: Version
    disk: int
    memory: int
    cloning: tuple[str, ...] = ()
    cuda: bool = False


@dataclass(frozen=True, slots=True)
class CompiledBuild:
    """A build with compilers, by the upstream's own backend or CMake.

    Attributes:
        device: the environment variable that names the device.
        version: the environment variable that names the version.
        needs: the requirements of each device, by upstream's name of it. The first one is built by default.
        options: CMake's options beside the usual ones. `{device}` and `{python}` stand for the device and the interpreter.
        cuda: environment variables of a build for CUDA, with the values that the user's environment can override.
        decides: a regular expression for names of environment variables that affect the result.
        ready_made: part of the names of variables that would bring precompiled files into the build.
        base: the package that the environment needs for CMake alone, and whose build for CUDA has to match nvcc.
        defines: a regular expression whose first group is a CMake target that makes a library.

    """

    device: str
    version: str
    needs: Mapping[str, Needs]
    options: Mapping[str, str] = field(default_factory=_nothing)
    cuda: Mapping[str, str] = field(default_factory=_nothing)
    decides: str = ""
    ready_made: str = ""
    base: str = ""
    defines: str = ""


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

    """

    changes: Changes | None = None
    plain: PlainBuild | None = None
    compiled: CompiledBuild | None = None
    edits: Mapping[str, Edits] = field(default_factory=lambda: MappingProxyType({}))
