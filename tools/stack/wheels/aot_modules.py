# SPDX-License-Identifier: Apache-2.0
"""Compile JIT modules of an upstream ahead of time with upstream's sources and flags, for a separate package.

They are linked as upstream does it, but against stub libraries instead of CUDA's: a shared object needs only their names. So
the result does not depend on whether the machine has CUDA's libraries.
"""

import difflib
import fnmatch
import json
import os
import platform
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from stack.base.errors import StackError
from stack.base.progress import Progress
from stack.projects import UnitScript
from stack.proof.compiling import compiler, jobs, listing
from stack.proof.compiling.listing import Listing, Unit
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places

_SONAMES = {"cuda": "libcuda.so.1"} | {
    name: f"lib{name}.so.{{major}}" for name in ("cublas", "cublasLt", "cudart", "curand", "cusolver", "cusparse", "nvrtc")
}
"""The soname of each CUDA library, with the CUDA release's major version."""
_NEAR = 5


@dataclass(frozen=True, slots=True)
class Module:
    """A module: its translation units, and its linker flags."""

    name: str
    units: tuple[Unit, ...]
    flags: tuple[str, ...]


def is_expression(wanted: str) -> bool:
    """Return whether the text is an expression that makes modules, such as `flashinfer.…Wrapper(…)`, and not a name."""
    return "(" in wanted


def modules(listed: Listing, wanted: Sequence[str]) -> tuple[Module, ...]:
    """Return the modules with these names (`*` matches any text) or made by these expressions, ordered by name.

    Raises:
        StackError: there is no such module, or one cannot be linked here.

    """
    known: dict[str, list[Unit]] = {}
    for unit in listed.units:
        known.setdefault(unit.module, []).append(unit)
    names = {name for pattern in wanted for name in _matching(listed, known, pattern)}
    return tuple(Module(name, tuple(known[name]), _flags(listed, name)) for name in sorted(names))


def _matching(listed: Listing, known: Mapping[str, object], wanted: str) -> list[str]:
    if is_expression(wanted):
        names = listed.made[wanted]
        if isinstance(names, str):
            raise StackError(f"--aot {wanted} makes no module ({names})", "see `makes` in docs/series.md")
        return [name for name in names if name in known]
    matching = fnmatch.filter(known, wanted)
    if not matching:
        near = difflib.get_close_matches(wanted, known, _NEAR) or sorted(known, key=len)
        raise StackError(
            f"{listed.script.title}'s JIT has no module {wanted} for {listing.SASS_ARCHITECTURE}",
            f"there are {', '.join(near[:_NEAR])} and others",
        )
    return matching


def _flags(listed: Listing, name: str) -> tuple[str, ...]:
    flags = listed.links.get(name, "it has no flags")
    if isinstance(flags, str):
        raise StackError(f"{name} cannot be linked ahead of time: {flags}", f"leave it to {listed.script.title}'s JIT")
    return flags


def compiled(
    listed: Listing, chosen: Sequence[Module], python: Path, toolkit: Toolkit, work: Path, tell: Progress
) -> dict[str, bytes]:
    """Compile modules, and return their shared objects by name.

    Objects are kept in `work`, a folder for one tree and compiler, and are not compiled twice. The paths of sources and headers
    do not appear in the objects. `python` is the interpreter whose environment has some of the headers.

    Raises:
        StackError: a unit does not compile, or a module does not link.

    """
    work.mkdir(parents=True, exist_ok=True)
    for left in work.glob(f"*{places.PART}"):  # left by a killed build
        left.unlink(missing_ok=True)
    mapped = {
        listed.tree: "source",
        listed.work: "generated",
        python.absolute().parents[1]: "environment",
        toolkit.home: "cuda",
    }
    maps = tuple(
        f"-ffile-prefix-map={folder}={name}"
        for place, name in mapped.items()
        for folder in dict.fromkeys((place, place.resolve()))
    )
    objects = {unit: work / f"{listed.fingerprint(unit)}.o" for module in chosen for unit in module.units}
    waiting = [(unit, place) for place, unit in {place: unit for unit, place in objects.items()}.items() if not place.exists()]
    pool = ThreadPoolExecutor(_at_once())
    try:
        running = [pool.submit(_compile, unit, maps, place, toolkit, listed.tree) for unit, place in waiting]
        for number, (job, (unit, _)) in enumerate(zip(running, waiting, strict=True)):
            tell(f"compiling {unit.name}", number, len(waiting))
            job.result()
    finally:
        # An interrupt also reaches the compilers; compilers that have not started yet must not start.
        pool.shutdown(cancel_futures=True)
    return {
        module.name: _linked(module, [objects[unit] for unit in module.units], toolkit, listed.script.title)
        for module in chosen
    }


def _at_once() -> int:
    """Return the number of compilers to run at once: the user's MAX_JOBS, else as many as memory allows."""
    return jobs.named() or jobs.that_fit()


def _compile(unit: Unit, maps: Sequence[str], place: Path, toolkit: Toolkit, tree: Path) -> None:
    # The name contains the process id: a compiler that outlived its build may still write its own file.
    part = place.with_suffix(f".{os.getpid()}{places.PART}")
    try:
        own = [f"-Xcompiler={flag}" if unit.is_cuda else flag for flag in maps]
        run = compiler.compile_unit(replace(unit, flags=(*unit.flags, *own)), unit.source, part, toolkit, tree)
        if run.error:
            raise StackError(
                f"{unit.name} does not compile: {run.error[:300]}", "`stack compile-check` shows what patches do there"
            )
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)


def _linked(module: Module, objects: Sequence[Path], toolkit: Toolkit, title: str) -> bytes:
    """Link a module, and return the shared object."""
    names = [flag.removeprefix("-l") for flag in module.flags if flag.startswith("-l")]
    unknown = [name for name in names if name not in _SONAMES]
    if unknown:
        raise StackError(f"{module.name} links against {unknown[0]}", f"leave it to {title}'s JIT")
    with tempfile.TemporaryDirectory(prefix="stack-link-") as folder:
        place = Path(folder)
        for name in dict.fromkeys(names):
            soname = _SONAMES[name].format(major=Version(toolkit.version).major)
            _run(["-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-x", "c", os.devnull, "-o", str(place / f"lib{name}.so")])
        # Leave out paths of the CUDA toolkit: only the stub libraries are linked against.
        flags = [flag for flag in module.flags if not flag.startswith("-L")]
        made = place / f"{module.name[:100]}.so"
        # The stubs define no symbols, so some linkers would drop them as unneeded.
        _run([*map(str, objects), f"-L{place}", "-Wl,-s", "-Wl,--no-as-needed", *flags, "-o", str(made)])
        return made.read_bytes()


def _run(arguments: Sequence[str]) -> None:
    done = subprocess.run([*compiler.cxx(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise StackError(f"the linker failed: {lines[0][:300]}", "check g++")


def package(script: UnitScript) -> str:
    """Return the name of the package that provides the modules.

    Raises:
        StackError: the project does not look for modules that were compiled ahead of time.

    """
    if script.package is None or script.code is None:
        raise StackError(f"{script.title} does not look for modules that were compiled ahead of time", "leave out --aot")
    return script.package


def files(script: UnitScript, built: Mapping[str, bytes], version: Version) -> dict[str, bytes]:
    """Return the files of the package that provides the modules to its project, by path in the wheel."""
    folder = package(script).replace("-", "_")
    assert script.code is not None
    architecture = listing.SASS_ARCHITECTURE.replace("_", "")
    about = {
        "version": str(version),
        "provider": architecture,
        "architectures": [architecture],
        "modules": sorted(built),
    }
    libraries = {f"{folder}/jit_cache/{name}/{name}.so": data for name, data in sorted(built.items())}
    return {
        f"{folder}/__init__.py": script.code.read_bytes(),
        f"{folder}/about.json": (json.dumps(about, indent=1) + "\n").encode(),
        **libraries,
    }


def tag() -> str:
    """Return the tag for a wheel with compiled files of the C++ compiler's processor, for any Python 3."""
    system = sysconfig.get_platform().removesuffix(platform.machine())
    return f"py3-none-{re.sub('[^a-z0-9_]', '_', f'{system}{compiler.processor()}'.lower())}"


def about(script: UnitScript, version: Version, holder: str) -> bytes:
    """Return METADATA of the wheel, which requires exactly one build of the package with the sources."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {package(script)}",
        f"Version: {version}",
        f"Summary: {script.title}'s modules compiled ahead of time for {listing.SASS_ARCHITECTURE}",
        "License-Expression: Apache-2.0",
        f"Requires-Dist: {holder}=={version}",
    ]
    return ("\n".join(lines) + "\n").encode()
