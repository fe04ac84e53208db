# SPDX-License-Identifier: Apache-2.0
"""A build with compilers: a wheel by the upstream's own backend, or some of its CMake targets.

A build works in a folder of its own in the cache, one a release, device and environment. It stays: the next build there compiles
only what has changed, and one that was interrupted goes on.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from stack.base import die_with_parent
from stack.base.errors import StackError
from stack.model.ids import TreeId
from stack.proof import environment, trees
from stack.store import cache as places
from stack.store.objects import Objects
from stack.store.sources import Progress
from stack.wheels import build_env, machine
from stack.wheels.native import CUDA, Plan

_TOOLS = ("cmake==4.4.4", "ninja==1.13.2")
"""Where those on PATH are missing or older than upstreams ask for."""
_CMAKE = Version("3.26.1")
_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
"""How ninja says what it does: done, all, the step."""
_ERROR = re.compile(r"\b(?:error|fatal)(?: #?[\w-]+)?\s*:|^CMake Error|^ERROR:|^\w*Error: ")
_DEFINED = re.compile(r"define_extension_target\(\s*(\w+)")
_LOG = "log.txt"
_INSTALLS = re.compile(r'CMAKE_INSTALL_COMPONENT STREQUAL "([^"]+)"')
"""How CMake notes that a target installs something."""

Run = Callable[[Sequence[str], Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Carried:
    """A carried tree, the store that has it, the cache that builds work in, and who is told of progress."""

    objects: Objects
    tree: TreeId
    cache: Path
    tell: Progress


def interpreter(plan: Plan, cache: Path, tell: Callable[[str], None]) -> Path:
    """The interpreter that a build runs with: the one that was named, else that of an environment in the cache.

    Raises:
        StackError: pip could not install something.

    """
    if plan.order.python is not None:
        return plan.order.python.absolute()
    key = hashlib.sha256(f"{sys.version_info[:2]} {' '.join(plan.requirements)}".encode()).hexdigest()[:12]
    steps = {"installing what the build needs": plan.requirements}
    return environment.made(cache, f"source-{key}", steps, tell)


def place(cache: Path, upstream: str, release: str, plan: Plan, python: Path) -> Path:
    """The folder of a build: what was compiled there fits the next one."""
    here = plan.machine
    # CMake keeps what it was first configured with, and ninja compiles nothing again for another compiler of the same name.
    decided = [str(python), plan.order.device, bool(plan.order.targets), str(here.gxx), str(here.nvcc), dict(plan.decided)]
    key = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:8]
    return cache / "wheels" / "building" / f"{upstream}-{release}-{plan.order.device}-{key}"


def wheel(plan: Plan, carried: Carried, python: Path, folder: Path, out: Path) -> Path:
    """Build a wheel of a tree into the folder `out`, by the tree's own backend.

    Raises:
        StackError: the build failed; its whole output is in `folder`.

    """
    source = folder / "source"
    with _working(carried, folder) as run:
        for left in [*source.glob("build/lib*"), *source.glob("build/bdist*")]:
            shutil.rmtree(left)  # setuptools would pack files into the wheel that the tree has no longer
        command = [str(python), "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-index", "--no-build-isolation"]
        env = _environment(plan, python, carried.cache)
        env |= {"PIP_CONFIG_FILE": os.devnull, "FETCHCONTENT_BASE_DIR": str(folder / "clones")}
        run([*command, "--wheel-dir", str(out), str(source)], env)
    made = sorted(out.glob("*.whl"))
    if len(made) != 1:
        raise StackError(f"the upstream's build made {len(made)} wheels", f"see {folder / _LOG}")
    return made[0]


def targets(plan: Plan, carried: Carried, python: Path, folder: Path, out: Path) -> tuple[Path, ...]:
    """Build some of a tree's CMake targets; what they install goes into the folder `out`, where a wheel would have it.

    Raises:
        StackError: no such target, or the build failed; its whole output is in `folder`.

    """
    source, build, installed = folder / "source", folder / "build", folder / "installed"
    env = _environment(plan, python, carried.cache)
    with _working(carried, folder) as run:
        run(["cmake", "-S", str(source), "-B", str(build), *_options(plan, python, folder)], env)
        _check(plan.order.targets, folder, env)
        run(["cmake", "--build", str(build), f"-j{plan.jobs}", *(f"--target={name}" for name in plan.order.targets)], env)
        shutil.rmtree(installed, ignore_errors=True)
        for name in plan.order.targets:
            run(["cmake", "--install", str(build), "--prefix", str(installed), "--component", name], env)
        found = sorted(path.relative_to(installed) for path in installed.rglob("*") if path.is_file())
        if not found:
            raise StackError(
                f"--target {' '.join(plan.order.targets)} makes no file", f"all that was said is in {folder / _LOG}"
            )
        for path in found:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            places.put(out / path, (installed / path).read_bytes())
    return tuple(out / path for path in found)


@contextlib.contextmanager
def _working(carried: Carried, folder: Path) -> Iterator[Run]:
    """Have the tree's files in a build's folder and nobody else there; runs the build's steps.

    What runs a step holds the lock, too: killed, the next build waits until the compilers of this one have ended.
    """
    with places.lock(folder, lambda: carried.tell("waiting for another build", 0, None)) as held:
        trees.move(carried.objects, carried.tree, folder / "source")
        (folder / _LOG).unlink(missing_ok=True)
        yield lambda command, env: _run(command, env, folder, held, carried.tell)


def _options(plan: Plan, python: Path, folder: Path) -> list[str]:
    """How CMake is configured: as upstream's setup.py does it."""
    found = {
        "CMAKE_BUILD_TYPE": os.environ.get("CMAKE_BUILD_TYPE", "RelWithDebInfo"),
        "VLLM_TARGET_DEVICE": plan.order.device,
        "VLLM_PYTHON_EXECUTABLE": str(python),
        "FETCHCONTENT_BASE_DIR": str(folder / "clones"),
        "CMAKE_JOB_POOL_COMPILE:STRING": "compile",
        "CMAKE_JOB_POOLS:STRING": f"compile={plan.jobs}",
    }
    if plan.order.device == CUDA:
        found["NVCC_THREADS"] = plan.environment["NVCC_THREADS"]
        home = plan.environment.get("CUDA_HOME")
        found |= {"CMAKE_CUDA_COMPILER": f"{home}/bin/nvcc"} if home else {}
    if plan.machine.launcher:
        found |= {f"CMAKE_{language}_COMPILER_LAUNCHER": plan.machine.launcher for language in ("C", "CXX", "CUDA")}
    return ["-G", "Ninja", *(f"-D{name}={value}" for name, value in found.items())]


def _check(names: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
    """Refuse targets that CMake does not have for the device, and those that install nothing (`all`, `clean`)."""
    source, build = folder / "source", folder / "build"
    listed = subprocess.run(
        ["ninja", "-C", str(build), "-t", "targets", "all"], env=dict(env), capture_output=True, text=True, check=False
    ).stdout
    noted = (
        file.read_text(encoding="utf-8") for place in (build, folder / "clones") for file in place.rglob("cmake_install.cmake")
    )
    here = {line.partition(":")[0] for line in listed.splitlines()} & {
        name for text in noted for name in _INSTALLS.findall(text)
    }
    odd = [name for name in names if name not in here]
    if odd:
        files = [source / "CMakeLists.txt", *sorted(source.glob("cmake/**/*.cmake"))]
        texts = (file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file())
        known = sorted({name for text in texts for name in _DEFINED.findall(text)} & here)
        raise StackError(
            f"there is no CMake target {odd[0]} for that device that makes a library", f"there are {', '.join(known) or 'none'}"
        )


def _environment(plan: Plan, python: Path, cache: Path) -> dict[str, str]:
    """What is passed of the user's environment (`inherited`) with the plan's; CMake and ninja are on its PATH."""
    env = build_env.passed(os.environ) | dict(plan.environment)
    env |= {"LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"}
    if plan.machine.launcher == "ccache":
        env["CCACHE_BASEDIR"] = str(cache)
    # The build's own Python comes first.
    env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", os.defpath)])
    version = machine.cmake(env["PATH"])
    if version is None or version < _CMAKE or shutil.which("ninja", path=env["PATH"]) is None:
        name = "-".join(_TOOLS).replace("==", "-")
        tools = environment.made(cache, name, {"installing CMake and ninja": _TOOLS}, lambda _: None)
        env["PATH"] = os.pathsep.join([str(python.parent), str(tools.parent), os.environ.get("PATH", os.defpath)])
    return env


def _run(command: Sequence[str], env: Mapping[str, str], folder: Path, held: int, tell: Progress) -> None:
    """Run a step of a build; its output goes into a log, its progress to whoever looks. `held`: the lock's descriptor.

    When this process is killed, all that the step has started is, too; the lock is held until it has ended.

    Raises:
        StackError: it failed.

    """
    log = folder / _LOG
    said: list[str] = []
    with (
        log.open("a", encoding="utf-8") as written,
        subprocess.Popen(
            [sys.executable, "-I", die_with_parent.__file__, str(os.getpid()), *command],
            cwd=folder,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=(held,),
        ) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            written.write(line)
            step = _STEP.match(line)
            if step is not None:
                tell("compiling", int(step[1]), int(step[2]))
            elif line.strip():
                said.append(line.strip())
    if running.returncode:
        raise StackError(f"the upstream's build failed: {_first_error(said)[:300]}", f"all that it said is in {log}")


def _first_error(said: Sequence[str]) -> str:
    """The first line that a compiler, CMake or pip calls an error, with the next one where it says only where."""
    for number, line in enumerate(said):
        if _ERROR.search(line):
            return f"{line} {said[number + 1]}" if line.endswith(":") and number + 1 < len(said) else line
    return said[-1] if said else "no message"
