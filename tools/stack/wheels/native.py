# SPDX-License-Identifier: Apache-2.0
"""What a build with compilers takes on this machine: environment, jobs, what is cloned, and what is missing, before anything starts.

The facts are upstream's: vLLM's setup.py (variables, launchers of compilers) and CMakeLists.txt (compilers, devices, clones).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import TreeId
from stack.proof import interpreters
from stack.proof.compiling import jobs, listing, toolkit
from stack.store.objects import Objects
from stack.wheels import build_env, clones, machine
from stack.wheels.clones import Clone
from stack.wheels.machine import Machine
from stack.wheels.source import EPOCH

CUDA, CPU, EMPTY = "cuda", "cpu", "empty"
DEVICES = (CUDA, CPU, EMPTY)
"""In upstream's words; `empty`: nothing that is for a device."""
_KNOWS_SM121 = Version("12.9")
_GB = 10**9
_CXX_EACH = 2 * _GB
"""Bytes for one C++ compiler on sources that include torch. An estimate: nvcc's need is measured (jobs.EACH)."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to compile: for which device, and only these CMake targets (a wheel where there is none); `python`: in whose environment."""

    device: str = CUDA
    targets: tuple[str, ...] = ()
    python: Path | None = None

    @property
    def flavour(self) -> str:
        """How the version names the device: vLLM looks for `cpu` there when it starts."""
        return "" if self.device == CUDA else self.device


@dataclass(frozen=True, slots=True)
class Needs:
    """What a device takes: the oldest g++, free disk space in bytes, and the files of the tree that clone repositories.

    Disk space is an estimate: torch's environment takes 5.8 GB with CUDA, 1.3 GB without; the rest is clones and objects.
    """

    gxx: Version
    disk: int
    cloning: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an upstream is built: the variables that take device and version, and what each device takes."""

    device: str
    version: str
    needs: Mapping[str, Needs]


_TOP = "CMakeLists.txt"
RECIPES = {
    "vllm": Recipe(
        device="VLLM_TARGET_DEVICE",
        version="VLLM_VERSION_OVERRIDE",
        needs={
            CUDA: Needs(Version("11.3"), 40 * _GB, (_TOP, "cmake/external_projects/")),
            CPU: Needs(Version("12.3"), 10 * _GB, ("cmake/cpu_extension.cmake",)),
            EMPTY: Needs(Version("11.3"), 3 * _GB),
        },
    )
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A build: on what machine, what is set for it, compilers beside each other, the build environment, clones, and what is missing.

    `decided`: what decides what comes out, of what is set for it and of what it gets of the user's environment. `dropped`: the
    variables that it does not get, since they would put ready-made files into it.
    """

    order: Order
    machine: Machine
    environment: Mapping[str, str]
    decided: Mapping[str, str]
    dropped: tuple[str, ...]
    jobs: int
    requirements: tuple[str, ...]
    clones: tuple[Clone, ...]
    lacking: tuple[str, ...]

    @property
    def target(self) -> str:
        """The device, and for which of its architectures."""
        return f"{self.order.device} {self.environment.get('TORCH_CUDA_ARCH_LIST', '')}".rstrip()


def plan(stores: Stores, upstream: str, tree: TreeId, version: Version, order: Order) -> Plan:
    """How a tree would be built here.

    Raises:
        StackError: the tree does not say what its build needs.

    """
    recipe, objects = RECIPES[upstream], stores.objects(upstream)
    needs = recipe.needs[order.device]
    here = machine.look(stores.place.cache)
    requires = requirements(objects, tree)
    cloned = clones.needed(clones.of(objects, tree, needs.cloning))
    number = _jobs(order.device, here)
    lacking = [*missing(order.device, needs, here, cloned)]
    if order.python is not None:
        lacking += unfit(order, requires, here, order.python)
    env = _environment(recipe, order, version, here, number)
    decided, dropped = build_env.deciding({**os.environ, **env}), build_env.dropped(os.environ)
    return Plan(order, here, env, decided, dropped, number, requires, cloned, tuple(lacking))


def lacks(one: Plan, python: Path) -> tuple[str, ...]:
    """What the environment of a build lacks.

    Raises:
        StackError: the interpreter does not answer.

    """
    return tuple(unfit(one.order, one.requirements, one.machine, python))


def tool_versions(one: Plan, python: Path) -> dict[str, str]:
    """What decides what comes out, beside the tree: compilers and packages of the build environment.

    Raises:
        StackError: the interpreter does not answer.

    """
    names = [Requirement(name).name for name in one.requirements]
    found = {name: version for name, version in interpreters.versions(python, names).items() if version}
    here = one.machine
    compilers = {"g++": here.gxx, "nvcc": here.nvcc if one.order.device == CUDA else None, "cargo": here.cargo}
    return found | {name: str(version) for name, version in compilers.items() if version is not None}


def requirements(objects: Objects, tree: TreeId) -> tuple[str, ...]:
    """What a tree names as needed for its build (PEP 518).

    Raises:
        StackError: it names nothing.

    """
    entry = objects.entry(tree, "pyproject.toml")
    try:
        text = objects.read(entry.id).decode() if entry is not None else ""
        found = tuple(str(one) for one in document.parse(text)["build-system"]["requires"])
    except (KeyError, TypeError, ValueError) as bad:
        raise StackError("the tree's pyproject.toml does not say what its build needs", "see [build-system]") from bad
    return tuple(str(Requirement(one)) for one in found)


def missing(device: str, needs: Needs, here: Machine, cloned: tuple[Clone, ...]) -> Iterator[str]:
    """What a machine lacks for a build, each with what to do; the cheap things first."""
    if device == CUDA and here.nvcc is None:
        place = "in CUDA_HOME" if os.environ.get("CUDA_HOME") else "on PATH"
        yield f"nvcc is not {place} (install the CUDA toolkit that torch is built with)"
    elif device == CUDA and here.nvcc is not None and here.nvcc < _KNOWS_SM121:
        yield f"nvcc {here.nvcc} does not know SM121 (install {_KNOWS_SM121} or newer)"
    if here.gxx is None:
        yield "g++ is not on PATH (apt-get install g++)"
    elif here.gxx < needs.gxx:
        yield f"g++ {here.gxx} is too old (install {needs.gxx} or newer, or name one in CXX)"
    wanted = ("git", "patch") if device == CUDA else ("git",) if cloned else ()
    yield from (f"{name} is not on PATH (apt-get install {name})" for name in wanted if name not in here.programs)
    each = _each(device)
    if here.memory < each:
        yield f"memory: {here.memory / _GB:.0f} GB are free, one compiler takes up to {each / _GB:.0f} GB"
    if here.disk < needs.disk:
        yield f"disk: {here.disk / _GB:.0f} GB are free, {needs.disk / _GB:.0f} GB are needed (STACK_CACHE names another place)"
    closed = clones.unreachable(cloned) if "git" in here.programs else None
    if closed is not None:
        instead = f" ({closed.instead} names a folder in its place; --plan shows all)" if closed.instead else ""
        yield f"{closed.repository} does not answer, and upstream's CMake clones it{instead}"


def unfit(order: Order, requires: tuple[str, ...], here: Machine, python: Path) -> Iterator[str]:
    """What an environment lacks for a build: packages, and a torch that is built for the device.

    Raises:
        StackError: the interpreter does not answer.

    """
    wanted = [Requirement(one) for one in requires]
    if order.targets:  # CMake is started without the backend
        wanted = [one for one in wanted if one.name == "torch"]
    have = interpreters.versions(python, [one.name for one in wanted])
    for one in wanted:
        version = have.get(one.name)
        if one.marker is not None and not one.marker.evaluate():
            continue
        if version is None or not one.specifier.contains(version, prereleases=True):
            found = f"has {one.name} {version}" if version else f"has no {one.name}"
            yield f"{python} {found} (pip install '{one}')"
    if order.device == CUDA and have.get("torch"):
        cuda = interpreters.cuda(python)
        if cuda is None:
            yield f"torch {have['torch']} is built without CUDA (name another environment: --python)"
        elif here.nvcc is not None and here.nvcc.major != Version(cuda).major:
            yield f"nvcc is of CUDA {here.nvcc}, torch of {cuda} (install the same major version)"


def _jobs(device: str, here: Machine) -> int:
    """Compilers beside each other: what the user's MAX_JOBS says, else as many as fit."""
    return jobs.named() or max(1, min(here.processors, here.memory // _each(device)))


def _each(device: str) -> int:
    return jobs.EACH if device == CUDA else _CXX_EACH


def _environment(recipe: Recipe, order: Order, version: Version, here: Machine, number: int) -> dict[str, str]:
    """What is set for the build, beside what the user's environment says (CXX, CUDA_HOME, *_SRC_DIR, CMAKE_ARGS)."""
    found = {
        recipe.device: order.device,
        recipe.version: str(version),
        "SETUPTOOLS_SCM_PRETEND_VERSION": str(version),
        "SOURCE_DATE_EPOCH": EPOCH,
        "MAX_JOBS": str(number),
    }
    if order.device == CUDA:
        found["TORCH_CUDA_ARCH_LIST"] = os.environ.get("TORCH_CUDA_ARCH_LIST", listing.ARCHITECTURE)
        found["NVCC_THREADS"] = os.environ.get("NVCC_THREADS", "1")
        compiler = toolkit.on_path()
        # torch would take the folder above that of the nvcc on PATH, which may be a link or a script.
        home = os.environ.get("CUDA_HOME") or (compiler and str(compiler[0]))
        found |= {"CUDA_HOME": home} if home else {}
    if here.launcher == "ccache":
        found["CCACHE_NOHASHDIR"] = "1"
    return found
