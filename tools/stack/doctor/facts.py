# SPDX-License-Identifier: Apache-2.0
"""Gather the facts about this machine: the only module of the doctor that starts programs and reads the system."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from packaging.utils import canonicalize_name

from stack.deploy import available_memory, memory_advice, memory_holders
from stack.doctor.jit import Module, modules
from stack.model.pins import Pin
from stack.model.verdict import Machine
from stack.validation import machine

_WAIT = 120.0
"""Seconds that an interpreter may take; importing torch from a cold disk takes long."""
_PREFIXES = ("VLLM_", "FLASHINFER_", "TORCH_", "CUDA_", "NVCC_", "TRITON_", "TIKTOKEN_", "HF_", "TRANSFORMERS_")
_PLAIN = ("MAX_JOBS", "HOME", "PATH")
_SECRET = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD)S?(?:_|$)")
VOCABULARY = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""SHA-256 of OpenAI's o200k_base.tiktoken; tiktoken and harmony check the same."""
CACHED = "fb374d419588a4632f3f557e76b4b70aebbca790"
"""Name of the file in tiktoken-rs' cache: the SHA-1 of its address."""
PLAIN = "o200k_base.tiktoken"
KILLERS = frozenset({"earlyoom", "systemd-oomd"})
"""Programs that end others when little memory is left."""
_SMALLEST = b".version 8.0\n.target sm_80\n.address_size 64\n"
_ASK = """
import importlib.metadata as known, json, os, platform, sys, sysconfig
found = {}
for one in known.distributions():
    name = one.metadata["Name"]
    if name:
        found.setdefault(name, (one.version, one.requires or []))
marks = {"implementation_name": sys.implementation.name, "os_name": os.name, "platform_machine": platform.machine(),
         "platform_python_implementation": platform.python_implementation(), "platform_release": platform.release(),
         "platform_system": platform.system(), "platform_version": platform.version(), "sys_platform": sys.platform,
         "python_full_version": platform.python_version(), "python_version": "%d.%d" % sys.version_info[:2],
         "implementation_version": platform.python_version()}
torch, problem = None, ""
if "torch" in found:
    try:
        import torch as there
        torch = [there.version.cuda, there.backends.cudnn.version() if there.version.cuda else None]
    except Exception as failed:
        problem = "%s: %s" % (type(failed).__name__, failed)
print(json.dumps({"found": found, "marks": marks, "torch": torch, "problem": problem, "site": sysconfig.get_path("platlib")}))
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package, with the requirements in its metadata."""

    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Torch:
    """An installed torch that can be imported. `cuda`: the CUDA it is built for, None for CPUs; `cudnn`: loaded version, 91400 for 9.14.0."""

    cuda: str | None
    cudnn: int | None = None


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter and its packages (by normalized names). `marks`: the environment for requirements' markers.

    `problem`: why it, or its torch, cannot be examined.
    """

    path: Path
    packages: Mapping[str, Package] = field(default_factory=lambda: MappingProxyType({}))
    marks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    torch: Torch | None = None
    site: Path | None = None
    problem: str = ""

    def version(self, name: str) -> str | None:
        """Return the version of an installed package."""
        found = self.packages.get(name)
        return found.version if found is not None else None


@dataclass(frozen=True, slots=True)
class Ptxas:
    """An assembler. `knows`: whether it supports sm_121a; None if it cannot be run."""

    owner: str
    path: str
    knows: bool | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts. `available`: free bytes of memory; `hashes`: SHA-256 of the vocabulary files that variables name.

    `pins`: the stack's pinned versions; `utilization`: the share of the GPU's memory that the recipe takes; `is_nvidia`: whether the
    machine has an NVIDIA GPU, with or without a driver. `frees`: what would free memory; `killers`: running programs that end others.
    """

    machine: Machine
    available: int
    environment: Mapping[str, str]
    python: Python
    ptxas: tuple[Ptxas, ...] = ()
    modules: tuple[Module, ...] = ()
    hashes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    pins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    utilization: float | None = None
    is_nvidia: bool = False
    frees: tuple[str, ...] = ()
    killers: tuple[str, ...] = ()

    @property
    def capability(self) -> str | None:
        """Compute capability of the first GPU."""
        return self.machine.gpus[0].capability if self.machine.gpus else None

    @property
    def is_sm12x(self) -> bool:
        """Whether one of the GPUs is an SM120 or SM121."""
        return any(gpu.capability.startswith("12.") for gpu in self.machine.gpus)

    @property
    def is_unified(self) -> bool:
        """Whether the GPU shares the machine's memory: then its driver reports no memory of its own."""
        return bool(self.machine.gpus) and self.machine.gpus[0].memory is None


def gather(python: Path, pins: Iterable[Pin], utilization: float | None = None) -> Facts:
    """Examine this machine, and the packages of an interpreter."""
    environment = {name: value for name, value in os.environ.items() if _is_told(name)}
    examined = _ask(python)
    memory = available_memory.read()
    return Facts(
        machine=machine.here(),
        available=memory.usable,
        environment=environment,
        python=examined,
        ptxas=tuple(_ptxas(environment, examined.site)),
        modules=tuple(modules(environment, python, examined.site)),
        hashes=dict(_hashes(environment)),
        pins={pin.archive.package: pin.archive.version for pin in pins if pin.archive is not None},
        utilization=utilization,
        is_nvidia=has_nvidia_gpu(),
        frees=memory_advice.steps(memory),
        killers=memory_holders.running(available_memory.HERE.proc, KILLERS),
    )


def has_nvidia_gpu(devices: Path = Path("/sys/bus/pci/devices")) -> bool:
    """Tell whether the PCI bus has a GPU of NVIDIA, with or without a driver."""
    return any(map(_is_gpu, devices.glob("*")))


def _is_gpu(device: Path) -> bool:
    try:
        # Class 0x03 is a display controller.
        return (device / "vendor").read_text().strip() == "0x10de" and (device / "class").read_text().startswith("0x03")
    except OSError:
        return False


def interpreter() -> Path:
    """Find the interpreter that serves: the one beside the `vllm` on PATH, else the first Python on PATH."""
    served = shutil.which("vllm")
    beside = Path(served).resolve().parent / "python" if served else None
    if beside is not None and beside.is_file():
        return beside
    return Path(shutil.which("python3") or shutil.which("python") or "python3")


def _is_told(name: str) -> bool:
    return (name.startswith(_PREFIXES) or name in _PLAIN) and not _SECRET.search(name)


def _ask(python: Path) -> Python:
    try:
        done = subprocess.run(
            [str(python), "-W", "ignore", "-c", _ASK], capture_output=True, text=True, check=False, timeout=_WAIT, cwd="/"
        )
        answer = json.loads(done.stdout.strip().rpartition("\n")[2])
        return Python(
            python,
            {canonicalize_name(name): Package(version, tuple(wants)) for name, (version, wants) in answer["found"].items()},
            answer["marks"],
            Torch(*answer["torch"]) if answer["torch"] else None,
            Path(answer["site"]),
            answer["problem"],
        )
    except OSError as failed:
        return Python(python, problem=f"it cannot be run ({failed.strerror})")
    except subprocess.TimeoutExpired:
        return Python(python, problem=f"it has not answered for {_WAIT:.0f} seconds")
    except (ValueError, KeyError, TypeError, AttributeError):
        return Python(python, problem="it does not answer as a Python")


def _ptxas(environment: Mapping[str, str], site: Path | None) -> Iterator[Ptxas]:
    """Yield the assemblers in use: that of the CUDA toolkit, and Triton's own for Blackwell."""
    home = environment.get("CUDA_HOME") or environment.get("CUDA_PATH")
    found = str(Path(home) / "bin/ptxas") if home else shutil.which("ptxas") or "/usr/local/cuda/bin/ptxas"
    if Path(found).is_file():
        yield Ptxas("CUDA's", found, _knows(found))
    if site is not None and (site / "triton").is_dir():
        own = site / "triton/backends/nvidia/bin"
        fresh = own / "ptxas-blackwell"
        # Triton before 3.6 has a single one for all GPUs.
        name, file = ("TRITON_PTXAS_BLACKWELL_PATH", fresh) if fresh.exists() else ("TRITON_PTXAS_PATH", own / "ptxas")
        used = environment.get(name, str(file))
        yield Ptxas("Triton's", used, _knows(used))


def _knows(ptxas: str) -> bool | None:
    """Return whether an assembler supports sm_121a, by running it, since versions are not reliable."""
    with tempfile.TemporaryDirectory(prefix="stack-doctor-") as folder:
        source = Path(folder, "empty.ptx")
        source.write_bytes(_SMALLEST)
        command = [ptxas, "-arch=sm_121a", str(source), "-o", str(Path(folder, "empty.cubin"))]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return None
    if done.returncode == 0:
        return True
    return False if "gpu-name" in done.stderr + done.stdout else None


def _hashes(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, file in (("TIKTOKEN_ENCODINGS_BASE", PLAIN), ("TIKTOKEN_RS_CACHE_DIR", CACHED)):
        if folder := environment.get(name):
            try:
                yield name, hashlib.sha256(Path(folder, file).read_bytes()).hexdigest()
            except OSError:
                continue
