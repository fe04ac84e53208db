# SPDX-License-Identifier: Apache-2.0
"""Building kernels for this machine's CPU: `python -m stack.validation.numerics.emulated.building FLASHINFER` prints the library."""

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

HEADERS = "include/flashinfer/mxfp4"
"""Where the kernels are in FlashInfer."""

_OURS = Path(__file__).parent
_LIBRARY = "kernels.so"
_MACHINE = "machine.o"
_PART = ".part"
_COMMON = ("-std=c++17", "-O2", "-fPIC", "-ffp-contract=off", "-U_FORTIFY_SOURCE", "-w", "-g1")
# The compiler tells of each read and write of a kernel; loops that it makes vectors of would be told as fewer, larger ones. Telling is
# what takes the time: -O2 runs kernels no faster than -Og (the last one counts), and takes 6.1 s to compile them in place of 2.5 (GCC 12).
# Without exceptions and type information it is 9 % less; parsing is 0.3 s of it, so a precompiled header would save no more than that.
_KERNELS = ("-Og", "-fsanitize=thread", "-fno-tree-vectorize", "-fno-exceptions", "-fno-rtti")
_SECONDS = 600


class CannotBuild(Exception):
    """There is no compiler, or it refuses the kernels."""


def compiler() -> str:
    """The C++ compiler: `$CXX`, else c++.

    Raises:
        CannotBuild: there is none.

    """
    named = os.environ.get("CXX") or "c++"
    found = shutil.which(named)
    if found is None:
        raise CannotBuild(f"there is no C++ compiler {named}: apt-get install g++")
    return found


def headers(flashinfer: Path) -> dict[str, bytes]:
    """The kernels of a FlashInfer's source tree, by name; none where it has no such kernels."""
    return {path.name: path.read_bytes() for path in sorted((flashinfer / HEADERS).glob("*.cuh"))}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be compiled: files by path, and by which compiler."""

    sources: Mapping[str, bytes]
    cxx: str

    @property
    def name(self) -> str:
        """A short name for what comes of it, by all that it is made of."""
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
        """Compile the machine without kernels in the folder `place`, unless it is there. Many libraries can share it.

        Raises:
            CannotBuild: the compiler refuses it.

        """
        return _made(place, _MACHINE, self._compile_machine)

    def build(self, place: Path, machine: Path | None = None) -> Path:
        """Build the library in the folder `place`, unless it is there.

        `machine`: one that is compiled already, in place of one of its own.

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


def plan(kernels: Mapping[str, bytes], launchers: bytes | None = None) -> Plan:
    """What compiles kernels with the machine that runs them.

    `kernels`: headers of FlashInfer's folder `flashinfer/mxfp4` by name; of them `primitives.cuh` is not compiled. `launchers`: what
    Python calls, C++ with C's names, else `launchers.cpp`.

    Raises:
        CannotBuild: there is no compiler.

    """
    given = {f"device/flashinfer/mxfp4/{name}": data for name, data in kernels.items()}
    device = {str(path.relative_to(_OURS)): path.read_bytes() for path in (_OURS / "device").rglob("*") if path.is_file()}
    own = {name: (_OURS / name).read_bytes() for name in ("machine.cpp", "launchers.cpp")}
    return Plan(given | device | own | ({"launchers.cpp": launchers} if launchers is not None else {}), compiler())


def _write(sources: Mapping[str, bytes], work: Path) -> None:
    for name, data in sources.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _run(command: list[str], work: Path) -> None:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS)
    if done.returncode:
        said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-300:])
        raise CannotBuild(f"the kernels do not compile for this CPU: {said}")


def _made(place: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return the file `name` of the folder `place`. A missing folder is made under another name and renamed when it is complete."""
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
        if not (place / name).exists():  # else another process was first
            raise


def main() -> int:
    """Build the kernels of a FlashInfer's source tree. Exit code 2 where that cannot be done."""
    parser = argparse.ArgumentParser(prog="python -m stack.validation.numerics.emulated.building", description=__doc__)
    parser.add_argument("flashinfer", type=Path, help="a source tree of FlashInfer")
    parser.add_argument("--into", type=Path, required=True, help="the folder for what is built")
    asked = parser.parse_args()
    found = headers(asked.flashinfer)
    if not found:
        parser.error(f"{asked.flashinfer} has no {HEADERS}")
    try:
        planned = plan(found)
        print(planned.build(asked.into / planned.name))
    except CannotBuild as cannot:
        parser.error(str(cannot))
    return 0


if __name__ == "__main__":
    sys.exit(main())
