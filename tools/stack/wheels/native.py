# SPDX-License-Identifier: Apache-2.0
"""Plan a build with compilers on this machine: environment, jobs, clones, and everything that is missing, before it starts."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from stack.base.errors import StackError
from stack.carry.upstream_stores import Stores
from stack.model import document
from stack.model.ids import TreeId
from stack.projects import CompiledBuild, Needs, WheelRules
from stack.proof import interpreters
from stack.proof.compiling import jobs, toolkit
from stack.store.objects import Objects
from stack.wheels import build_env, clones, machine
from stack.wheels.clones import Clone
from stack.wheels.machine import Machine
from stack.wheels.source import EPOCH

_KNOWS_SM121 = Version("12.9")
_GB = 10**9


@dataclass(frozen=True, slots=True)
class CompileOrder:
    """The options for compiling: the device, single CMake targets (a whole wheel if empty), and the interpreter's environment to use.

    `device` has upstream's name; empty for its default.
    """

    device: str = ""
    targets: tuple[str, ...] = ()
    python: Path | None = None


@dataclass(frozen=True, slots=True)
class CompilePlan:
    """A planned build: the order with its device, upstream's rules, and what is missing here.

    It also has the machine, the build's variables, the number of jobs, requirements, and clones. `decided` has the variables that
    affect the result, both of the plan and of the user's environment. `dropped` names variables that are not passed because they
    would bring precompiled files into the build.
    """

    order: CompileOrder
    rules: WheelRules
    build: CompiledBuild
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
        """The device, with its architectures."""
        return f"{self.order.device} {self.environment.get(self.build.architectures, '')}".rstrip()

    @property
    def cuda(self) -> bool:
        """Whether nvcc compiles for the device."""
        return self.build.needs[self.order.device].cuda

    @property
    def flavour(self) -> str:
        """The device's mark in the version."""
        return flavour(self.build, self.order)


def flavour(build: CompiledBuild, order: CompileOrder) -> str:
    """Return the mark of the ordered device in the version, which vLLM looks for at its start (`cpu`); empty for the default."""
    return "" if order.device in ("", build.default) else order.device


def plan(
    stores: Stores, upstream: str, tree: TreeId, version: Version, rules: WheelRules, build: CompiledBuild, order: CompileOrder
) -> CompilePlan:
    """Plan how a tree would be built here.

    Raises:
        StackError: upstream has no such device, or the tree does not declare its build requirements.

    """
    objects, order = stores.objects(upstream), replace(order, device=order.device or build.default)
    if order.device not in build.needs:
        raise StackError(f"--device {order.device}: {upstream} has no such device", f"there are {', '.join(build.needs)}")
    needs = build.needs[order.device]
    here = machine.look(stores.place.cache)
    requires = requirements(objects, tree)
    cloned = clones.needed(clones.of(objects, tree, needs.cloning))
    number = _jobs(needs, here)
    lacking = [*missing(build, needs, here, cloned)]
    if order.python is not None:
        lacking += unfit(build, order, requires, here, order.python)
    env = _environment(build, order, version, here, number)
    decided, dropped = build_env.deciding({**os.environ, **env}, rules), build_env.dropped(os.environ, rules)
    return CompilePlan(order, rules, build, here, env, decided, dropped, number, requires, cloned, tuple(lacking))


def lacks(plan_: CompilePlan, python: Path) -> tuple[str, ...]:
    """Return what the environment of a build lacks.

    Raises:
        StackError: the interpreter does not answer.

    """
    return tuple(unfit(plan_.build, plan_.order, plan_.requirements, plan_.machine, python))


def tool_versions(plan_: CompilePlan, python: Path) -> dict[str, str]:
    """Return the versions of compilers and build packages, which affect the result besides the tree.

    Raises:
        StackError: the interpreter does not answer.

    """
    names = [Requirement(name).name for name in plan_.requirements]
    packages = {name: version for name, version in interpreters.versions(python, names).items() if version}
    here = plan_.machine
    compilers = {"g++": here.gxx, "nvcc": here.nvcc if plan_.cuda else None, "cargo": here.cargo}
    return packages | {name: str(version) for name, version in compilers.items() if version is not None}


def requirements(objects: Objects, tree: TreeId) -> tuple[str, ...]:
    """Return the build requirements that a tree declares (PEP 518).

    Raises:
        StackError: it declares none.

    """
    entry = objects.entry(tree, "pyproject.toml")
    try:
        text = objects.read(entry.id).decode() if entry is not None else ""
        declared = tuple(str(requirement) for requirement in document.parse(text)["build-system"]["requires"])
    except (KeyError, TypeError, ValueError) as bad:
        raise StackError("the tree's pyproject.toml does not declare what its build needs", "see [build-system]") from bad
    return tuple(str(Requirement(requirement)) for requirement in declared)


def missing(build: CompiledBuild, needs: Needs, here: Machine, cloned: tuple[Clone, ...]) -> Iterator[str]:
    """Yield what a machine lacks for a build, each with a remedy, cheap checks first."""
    if needs.cuda and here.nvcc is None:
        place = "in CUDA_HOME" if os.environ.get("CUDA_HOME") else "on PATH"
        yield f"nvcc is not {place} (install the CUDA toolkit{f' that {build.base} is built with' if build.base else ''})"
    elif needs.cuda and here.nvcc is not None and here.nvcc < _KNOWS_SM121:
        yield f"nvcc {here.nvcc} does not know SM121 (install {_KNOWS_SM121} or newer)"
    if here.gxx is None:
        yield "g++ is not on PATH (apt-get install g++)"
    elif here.gxx < needs.gxx:
        yield f"g++ {here.gxx} is too old (install {needs.gxx} or newer, or name one in CXX)"
    wanted = needs.programs or (("git",) if cloned else ())
    yield from (f"{name} is not on PATH (apt-get install {name})" for name in wanted if name not in here.programs)
    if here.memory < needs.memory:
        yield f"memory: {here.memory / _GB:.0f} GB are free, one compiler takes up to {needs.memory / _GB:.0f} GB"
    if here.disk < needs.disk:
        yield f"disk: {here.disk / _GB:.0f} GB are free, {needs.disk / _GB:.0f} GB are needed (STACK_CACHE names another place)"
    closed = clones.unreachable(cloned) if "git" in here.programs else None
    if closed is not None:
        instead = f" ({closed.instead} can name a local folder; --plan shows all)" if closed.instead else ""
        yield f"{closed.repository} is not reachable, and upstream's CMake clones it{instead}"


def unfit(build: CompiledBuild, order: CompileOrder, requires: tuple[str, ...], here: Machine, python: Path) -> Iterator[str]:
    """Yield what an environment lacks for a build: packages, and a base package built for the device.

    Raises:
        StackError: the interpreter does not answer.

    """
    wanted = [Requirement(requirement) for requirement in requires]
    if order.targets:  # CMake runs without the build backend
        wanted = [requirement for requirement in wanted if requirement.name == build.base]
    have = interpreters.versions(python, [requirement.name for requirement in wanted])
    for requirement in wanted:
        version = have.get(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            state = f"has {requirement.name} {version}" if version else f"has no {requirement.name}"
            yield f"{python} {state} (pip install '{requirement}')"
    if build.needs[order.device or build.default].cuda and have.get(build.base):
        cuda = interpreters.printed(python, build.base_cuda)
        if cuda is None:
            yield f"{build.base} {have[build.base]} is built without CUDA (name another environment: --python)"
        elif here.nvcc is not None and here.nvcc.major != Version(str(cuda)).major:
            yield f"nvcc is for CUDA {here.nvcc}, {build.base} for {cuda} (install the same major version)"


def _jobs(needs: Needs, here: Machine) -> int:
    """Return the number of compilers to run at once: the user's MAX_JOBS, else as many as fit."""
    return jobs.named() or max(1, min(here.processors, here.memory // needs.memory))


def _environment(build: CompiledBuild, order: CompileOrder, version: Version, here: Machine, number: int) -> dict[str, str]:
    """Return the variables that the build sets, besides those of the user's environment (CXX, CUDA_HOME, *_SRC_DIR, CMAKE_ARGS)."""
    variables = {
        build.device: order.device,
        build.version: str(version),
        "SETUPTOOLS_SCM_PRETEND_VERSION": str(version),
        "SOURCE_DATE_EPOCH": EPOCH,
        "MAX_JOBS": str(number),
    }
    if build.needs[order.device].cuda:
        variables |= {name: os.environ.get(name, value) for name, value in build.cuda.items()}
        compiler = toolkit.on_path()
        # A package such as torch would use the folder above nvcc on PATH, which may be a link or a script.
        home = os.environ.get("CUDA_HOME") or (compiler and str(compiler[0]))
        variables |= {"CUDA_HOME": home} if home else {}
    if here.launcher == "ccache":
        variables["CCACHE_NOHASHDIR"] = "1"
    return variables
