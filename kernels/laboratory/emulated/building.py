# SPDX-License-Identifier: Apache-2.0
"""Build kernels for this machine's CPU: `python -m laboratory.emulated.building FLASHINFER` prints the library."""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stack.validation.numerics import HEADERS

_OURS = Path(__file__).parent
_LIBRARY = "kernels.so"
_MACHINE = "machine.o"
_PART = ".part"
_COMMON = ("-std=c++17", "-O2", "-fPIC", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-w", "-g1")
# The thread sanitizer's hooks report each read and write of a kernel; a vectorized loop would report fewer, larger ones.
# The reports dominate the run time, so -O2 is not faster than -Og (the last option counts), and compiles in 6.1 s instead of 2.5 (GCC 12).
# Omitting exceptions and type information saves 9 %. Parsing takes 0.3 s, the most that a precompiled header could save.
_KERNELS = ("-Og", "-fsanitize=thread", "-fno-tree-vectorize", "-fno-exceptions", "-fno-rtti")
_SECONDS = 600


class CannotBuild(Exception):
    """Raised when a compiler is missing, or it refuses the kernels."""


def compiler() -> str:
    """Find the C++ compiler: `$CXX`, else c++.

    Raises:
        CannotBuild: it is not installed.

    """
    named = os.environ.get("CXX") or "c++"
    path = shutil.which(named)
    if path is None:
        raise CannotBuild(f"there is no C++ compiler {named}: apt-get install g++")
    return path


def headers(flashinfer: Path) -> dict[str, bytes]:
    """Read the kernels' headers of a FlashInfer source tree, by name; empty if it has none."""
    return {path.name: path.read_bytes() for path in sorted((flashinfer / HEADERS).glob("*.cuh"))}


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The source files to compile, by path, and the compiler."""

    sources: Mapping[str, bytes]
    cxx: str

    @property
    def name(self) -> str:
        """A short name of the result, derived from all its inputs."""
        return self.digest[:16]

    @property
    def digest(self) -> str:
        """Hash the sources, the flags, the compiler's version and the processor's architecture."""
        version = subprocess.run([self.cxx, "--version"], capture_output=True, check=False, timeout=_SECONDS).stdout
        whole = hashlib.sha256(repr((_COMMON, _KERNELS, platform.machine(), version)).encode())
        for name, data in sorted(self.sources.items()):
            whole.update(f"{name} {len(data)}\n".encode() + data)
        return whole.hexdigest()

    def machine(self, place: Path) -> Path:
        """Compile the machine without kernels in the folder `place`, unless it exists. Many libraries can share it.

        Raises:
            CannotBuild: the compiler refuses it.

        """
        return _made(place, _MACHINE, self._compile_machine)

    def build(self, place: Path, machine: Path | None = None) -> Path:
        """Build the library in the folder `place`, unless it exists.

        `machine`: a compiled machine to use; without it, one is compiled.

        Raises:
            CannotBuild: the compiler refuses the kernels.

        """
        return _made(place, _LIBRARY, partial(self._compile, machine=machine))

    def _compile_machine(self, work: Path) -> None:
        _write(self.sources, work)
        _run([self.cxx, *_COMMON, "-Idevice", "-c", "machine.cpp", "-o", _MACHINE], work)

    def _compile(self, work: Path, machine: Path | None) -> None:
        _write(self.sources, work)
        if machine is None:
            self._compile_machine(work)
        objects = ("launchers.o", _MACHINE if machine is None else str(machine.absolute()))
        _run([self.cxx, *_COMMON, *_KERNELS, "-Idevice", "-c", "launchers.cpp", "-o", objects[0]], work)
        _run([self.cxx, "-shared", "-Wl,-Bsymbolic", *objects, "-ldl", "-o", _LIBRARY], work)
        for path in work.glob("*.o"):
            path.unlink()


def plan(kernels: Mapping[str, bytes], launchers: bytes | None = None) -> BuildPlan:
    """Collect the sources of kernels and of the machine that runs them.

    `kernels`: headers of FlashInfer's folder `flashinfer/mxfp4` by name; its `primitives.cuh` is replaced by ours. `launchers`: C++ with
    the extern "C" functions that Python calls; by default `launchers.cpp`.

    Raises:
        CannotBuild: there is no compiler.

    """
    given = {f"device/flashinfer/mxfp4/{name}": data for name, data in kernels.items()}
    device = {str(path.relative_to(_OURS)): path.read_bytes() for path in (_OURS / "device").rglob("*") if path.is_file()}
    own = {name: (_OURS / name).read_bytes() for name in ("machine.cpp", "launchers.cpp")}
    return BuildPlan(given | device | own | ({"launchers.cpp": launchers} if launchers is not None else {}), compiler())


def _write(sources: Mapping[str, bytes], work: Path) -> None:
    for name, data in sources.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _run(command: list[str], work: Path) -> None:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS)
    if done.returncode:
        error = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-300:])
        raise CannotBuild(f"the kernels do not compile for this CPU: {error}")


def _made(place: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return the file `name` of the folder `place`. Make a missing folder under another name and rename it when it is complete."""
    if not (place / name).exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=place.name, suffix=_PART, dir=place.parent))
        try:
            make(part)
            part.chmod(0o755)
            _switch(part, place, name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return place / name


def _switch(part: Path, place: Path, name: str) -> None:
    try:
        part.rename(place)
    except OSError:
        if not (place / name).exists():  # otherwise another process was faster
            raise


def main() -> int:
    """Build the kernels of a FlashInfer source tree. Exit with 2 if this is not possible."""
    parser = argparse.ArgumentParser(prog="python -m laboratory.emulated.building", description=__doc__)
    parser.add_argument("flashinfer", type=Path, help="a source tree of FlashInfer")
    parser.add_argument("--into", type=Path, required=True, help="the folder for the library")
    options = parser.parse_args()
    kernels = headers(options.flashinfer)
    if not kernels:
        parser.error(f"{options.flashinfer} has no {HEADERS}")
    try:
        planned = plan(kernels)
        print(planned.build(options.into / planned.name))
    except CannotBuild as cannot:
        parser.error(str(cannot))
    return 0


if __name__ == "__main__":
    sys.exit(main())
