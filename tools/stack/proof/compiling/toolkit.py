# SPDX-License-Identifier: Apache-2.0
"""Find the CUDA compiler and disassembler: those on PATH, else the registry's wheels, in the cache.

Wheels are unpacked, not installed: compiling needs none of the gigabytes of libraries beside the headers. Headers of libraries
(cuBLAS, cuRAND, …) are downloaded when a source includes one that the compiler lacks.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.version import Version

from stack.base.errors import StackError
from stack.base.progress import Progress, silent
from stack.proof import environment
from stack.store import cache as places

CUDA = "13.0"
"""The version of the wheels, the same as in the torch builds that vLLM pins."""
_OLDEST = Version("12.9")
"""The first nvcc that supports sm_121a."""
_COMPILER = (f"cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]=={CUDA}.*",)
# The registry has no disassembler of 13.0; a newer one reads older objects.
_DISASSEMBLER = ("nvidia-cuda-cuobjdump==13.2.*", "nvidia-cuda-nvdisasm==13.2.*")
_EXTRAS = {
    "cublas": "cublas",
    "curand": "curand",
    "cusolver": "cusolver",
    "cusparse": "cusparse",
    "cufft": "cufft",
    "nvrtc": "nvrtc",
    "nvtx3/": "nvtx",
    "nvToolsExt": "nvtx",
    "cudaProfiler": "profiler",
    "cuda_profiler_api": "profiler",
    "cupti": "cupti",
    "nvml": "nvml",
    # libcu++, Thrust and CUB, if the compiler on PATH lacks them
    "cuda/": "cccl",
    "thrust/": "cccl",
    "cub/": "cccl",
    "nv/": "cccl",
}
"""Maps the start of a library header's name to the extra of the package cuda-toolkit that contains it."""
_PARTS = frozenset({"bin", "include", "nvvm"})


@dataclass(frozen=True, slots=True)
class Toolkit:
    """A compiler and a disassembler. `home` has bin/ and include/; `headers` receives the headers of all libraries."""

    home: Path
    nvcc: Path
    version: str
    cuobjdump: Path
    headers: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which upstream's own code finds this compiler."""
        path = os.pathsep.join([str(self.nvcc.parent), os.environ.get("PATH", os.defpath)])
        return {**os.environ, "PATH": path, "CUDA_HOME": str(self.home), "CUDA_PATH": str(self.home)}


def find(cache: Path, tell: Progress = silent) -> Toolkit:
    """Find the compiler and the disassembler on PATH, or download them as wheels into the cache on the first call.

    Raises:
        StackError: No host C++ compiler is installed, or pip could not download something.

    """
    if not (shutil.which("gcc") and shutil.which("g++")):
        raise StackError("nvcc needs gcc and g++, which are not on PATH", "apt-get install g++")
    folder = cache / "compilers" / f"cuda-{CUDA}"
    installed = on_path()
    if installed is None:
        tell(f"downloading the compiler of CUDA {CUDA}")
        _unpack(_COMPILER, folder)
    home, nvcc, version = installed or (folder, folder / "bin/nvcc", CUDA)
    return Toolkit(home, nvcc, version, _disassembler(cache, tell), cache / "compilers" / f"headers-{version}")


def add_header(toolkit: Toolkit, header: str) -> bool:
    """Download the headers of the library that contains `header`; return whether that added the header.

    Raises:
        StackError: pip could not download it.

    """
    extra = next((extra for start, extra in _EXTRAS.items() if header.startswith(start)), None)
    if extra is None or (toolkit.headers / "include" / header).exists():
        return False
    # For a compiler on PATH whose release has no such package, take the headers of the nearest release.
    version = toolkit.version if Version(toolkit.version) >= Version("13.0") else CUDA
    _unpack((f"cuda-toolkit[{extra}]=={version}.*",), toolkit.headers, mark=extra)
    return (toolkit.headers / "include" / header).exists()


def on_path() -> tuple[Path, Path, str] | None:
    """Return home, program and version of the nvcc on PATH, if it supports sm_121a."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return None
    stated = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    release = re.search(r"release (\d+\.\d+)", stated)
    # Ask nvcc itself for its home: the program on PATH may be a link or a script.
    dry = subprocess.run([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True, check=False).stderr
    top = re.search(r"^#\$ TOP=(.+)$", dry, re.MULTILINE)
    if release is None or top is None or Version(release[1]) < _OLDEST:
        return None
    return Path(top[1]).resolve(), Path(nvcc), release[1]


def _disassembler(cache: Path, tell: Progress) -> Path:
    cuobjdump = shutil.which("cuobjdump")
    if cuobjdump and shutil.which("nvdisasm"):  # cuobjdump starts it
        return Path(cuobjdump)
    folder = cache / "compilers" / "disassembler"
    tell("downloading the disassembler")
    _unpack(_DISASSEMBLER, folder)
    return folder / "bin/cuobjdump"


def _unpack(requirements: tuple[str, ...], folder: Path, mark: str = "complete") -> None:
    """Unpack programs and headers (below nvidia/<name>/) of wheels into a folder, once."""
    stamp = folder / f"{mark}.stamp"
    with places.lock(folder):
        if stamp.exists():
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as work:
            _download(requirements, Path(work))
            for wheel in sorted(Path(work).glob("*.whl")):
                _take_apart(wheel, folder)
        stamp.touch()


def _download(requirements: tuple[str, ...], folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
        *requirements,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(
            f"pip cannot download {', '.join(requirements)}: {environment.first_error(done.stderr)}",
            "check the network and disk space, or put nvcc, cuobjdump and nvdisasm on PATH",
        )


def _take_apart(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            parts = PurePosixPath(member.filename).parts
            if len(parts) < 4 or parts[0] != "nvidia" or parts[2] not in _PARTS or ".." in parts or member.is_dir():
                continue
            target = folder.joinpath(*parts[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as written:
                shutil.copyfileobj(source, written)
            if member.external_attr >> 16 & stat.S_IXUSR:
                target.chmod(0o755)
