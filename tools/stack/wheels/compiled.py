# SPDX-License-Identifier: Apache-2.0
"""Build with compilers: a wheel by the upstream's own backend, or some of its CMake targets.

Each release, device and environment has its own build folder in the cache. The folder is kept: the next build compiles only
what has changed, and an interrupted build continues.
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
from stack.base.progress import Progress, silent
from stack.base.text import counted
from stack.model.ids import TreeId
from stack.proof import environment, trees
from stack.store import cache as places
from stack.store.objects import Objects
from stack.wheels import build_env, machine
from stack.wheels.native import CompilePlan

_TOOLS = ("cmake==4.4.4", "ninja==1.13.2")
"""Installed if those on PATH are missing or older than upstreams require."""
_CMAKE = Version("3.26.1")
_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)")
"""Matches ninja's progress: steps done, all steps, the current step."""
_ERROR = re.compile(r"\b(?:error|fatal)(?: #?[\w-]+)?\s*:|^CMake Error|^ERROR:|^\w*Error: ")
_LOG = "log.txt"
_INSTALLS = re.compile(r'CMAKE_INSTALL_COMPONENT STREQUAL "([^"]+)"')
"""Matches CMake's record that a target installs something."""

Run = Callable[[Sequence[str], Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class Carried:
    """A carried tree, its store, the cache for builds, and the progress callback."""

    objects: Objects
    tree: TreeId
    cache: Path
    tell: Progress


def interpreter(plan: CompilePlan, cache: Path, tell: Progress) -> Path:
    """Return the interpreter for a build: the one that the user named, else that of an environment in the cache.

    Raises:
        StackError: pip could not install a package.

    """
    if plan.order.python is not None:
        return plan.order.python.absolute()
    key = hashlib.sha256(f"{sys.version_info[:2]} {' '.join(plan.requirements)}".encode()).hexdigest()[:12]
    steps = {"installing what the build needs": plan.requirements}
    return environment.made(cache, f"source-{key}", steps, tell)


def place(cache: Path, upstream: str, release: str, plan: CompilePlan, python: Path) -> Path:
    """Return the folder of a build; a build in the same folder can reuse all compiled files."""
    here = plan.machine
    # CMake keeps its first configuration, and ninja does not recompile for another compiler of the same name.
    decided = [str(python), plan.order.device, bool(plan.order.targets), str(here.gxx), str(here.nvcc), dict(plan.decided)]
    key = hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()[:8]
    return cache / "wheels" / "building" / f"{upstream}-{release}-{plan.order.device}-{key}"


def wheel(plan: CompilePlan, carried: Carried, python: Path, folder: Path, out: Path) -> Path:
    """Build a wheel of a tree into the folder `out`, with the tree's own backend.

    Raises:
        StackError: the build failed; its whole output is in `folder`.

    """
    source = folder / "source"
    with _working(carried, folder) as run:
        for left in [*source.glob("build/lib*"), *source.glob("build/bdist*")]:
            shutil.rmtree(left)  # setuptools would pack files that the tree no longer has
        command = [str(python), "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-index", "--no-build-isolation"]
        env = _environment(plan, python, carried.cache)
        env |= {"PIP_CONFIG_FILE": os.devnull, "FETCHCONTENT_BASE_DIR": str(folder / "clones")}
        run([*command, "--wheel-dir", str(out), str(source)], env)
    made = sorted(out.glob("*.whl"))
    if len(made) != 1:
        raise StackError(f"the upstream's build made {counted(len(made), 'wheel')}", f"see {folder / _LOG}")
    return made[0]


def targets(plan: CompilePlan, carried: Carried, python: Path, folder: Path, out: Path) -> tuple[Path, ...]:
    """Build some of a tree's CMake targets, and install their files into the folder `out`, at their paths in a wheel.

    Raises:
        StackError: a target does not exist, or the build failed; its whole output is in `folder`.

    """
    source, build, installed = folder / "source", folder / "build", folder / "installed"
    env = _environment(plan, python, carried.cache)
    with _working(carried, folder) as run:
        run(["cmake", "-S", str(source), "-B", str(build), *_options(plan, python, folder)], env)
        _check(plan.order.targets, plan.build.defines, folder, env)
        run(["cmake", "--build", str(build), f"-j{plan.jobs}", *(f"--target={name}" for name in plan.order.targets)], env)
        shutil.rmtree(installed, ignore_errors=True)
        for name in plan.order.targets:
            run(["cmake", "--install", str(build), "--prefix", str(installed), "--component", name], env)
        built = sorted(path.relative_to(installed) for path in installed.rglob("*") if path.is_file())
        if not built:
            raise StackError(
                f"--target {' '.join(plan.order.targets)} makes no file", f"the whole output is in {folder / _LOG}"
            )
        for path in built:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            places.put(out / path, (installed / path).read_bytes())
    return tuple(out / path for path in built)


@contextlib.contextmanager
def _working(carried: Carried, folder: Path) -> Iterator[Run]:
    """Lock a build's folder, put the tree's files there, and provide a function that runs a step.

    The step's process inherits the lock: if this process is killed, the next build waits until its compilers have ended.
    """
    with places.lock(folder, lambda: carried.tell("waiting for another build", 0, None)) as held:
        trees.move(carried.objects, carried.tree, folder / "source")
        (folder / _LOG).unlink(missing_ok=True)
        yield lambda command, env: _run(command, env, folder, held, carried.tell)


def _options(plan: CompilePlan, python: Path, folder: Path) -> list[str]:
    """Return CMake's options, as upstream's setup.py sets them."""
    options = {
        "CMAKE_BUILD_TYPE": os.environ.get("CMAKE_BUILD_TYPE", "RelWithDebInfo"),
        **{name: _filled(value, plan, python) for name, value in plan.build.options.items()},
        "FETCHCONTENT_BASE_DIR": str(folder / "clones"),
        "CMAKE_JOB_POOL_COMPILE:STRING": "compile",
        "CMAKE_JOB_POOLS:STRING": f"compile={plan.jobs}",
    }
    if plan.cuda:
        options |= {name: plan.environment[name] for name in plan.build.cuda_options}
        home = plan.environment.get("CUDA_HOME")
        options |= {"CMAKE_CUDA_COMPILER": f"{home}/bin/nvcc"} if home else {}
    if plan.machine.launcher:
        options |= {f"CMAKE_{language}_COMPILER_LAUNCHER": plan.machine.launcher for language in ("C", "CXX", "CUDA")}
    return ["-G", "Ninja", *(f"-D{name}={value}" for name, value in options.items())]


def _filled(value: str, plan: CompilePlan, python: Path) -> str:
    return value.replace("{device}", plan.order.device).replace("{python}", str(python))


def _check(names: Sequence[str], defines: str, folder: Path, env: Mapping[str, str]) -> None:
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
        known = sorted({name for text in texts for name in re.findall(defines, text)} & here)
        raise StackError(
            f"there is no CMake target {odd[0]} for that device that makes a library", f"there are {', '.join(known) or 'none'}"
        )


def _environment(plan: CompilePlan, python: Path, cache: Path) -> dict[str, str]:
    """Return a build's environment: the user's variables that are passed, the plan's, and a PATH with CMake and ninja."""
    env = build_env.passed(os.environ, plan.rules) | dict(plan.environment)
    env |= {"LC_ALL": "C", "TZ": "UTC", "PYTHONHASHSEED": "0"}
    if plan.machine.launcher == "ccache":
        env["CCACHE_BASEDIR"] = str(cache)
    # The build's own Python comes first.
    env["PATH"] = os.pathsep.join([str(python.parent), env.get("PATH", os.defpath)])
    version = machine.cmake(env["PATH"])
    if version is None or version < _CMAKE or shutil.which("ninja", path=env["PATH"]) is None:
        name = "-".join(_TOOLS).replace("==", "-")
        tools = environment.made(cache, name, {"installing CMake and ninja": _TOOLS}, silent)
        env["PATH"] = os.pathsep.join([str(python.parent), str(tools.parent), os.environ.get("PATH", os.defpath)])
    return env


def _run(command: Sequence[str], env: Mapping[str, str], folder: Path, held: int, tell: Progress) -> None:
    """Run a step of a build, with its output in a log; `held` is the lock's file descriptor.

    If this process is killed, the step's processes are killed, too, and the lock is held until they have ended.

    Raises:
        StackError: the step failed.

    """
    log = folder / _LOG
    output: list[str] = []
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
                output.append(line.strip())
    if running.returncode:
        raise StackError(f"the upstream's build failed: {_first_error(output)[:300]}", f"the whole output is in {log}")


def _first_error(output: Sequence[str]) -> str:
    """Return the first error of a compiler, CMake or pip, with the next line if the first one only has the place."""
    for number, line in enumerate(output):
        if _ERROR.search(line):
            return f"{line} {output[number + 1]}" if line.endswith(":") and number + 1 < len(output) else line
    return output[-1] if output else "no message"
