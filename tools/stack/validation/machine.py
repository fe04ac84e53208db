# SPDX-License-Identifier: Apache-2.0
"""What a validation runs on: CPU, memory, GPUs, driver, and the versions that every verdict names."""

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

from stack.deploy.data import DATA
from stack.model.verdict import Gpu, Machine

_QUERY = ("--query-gpu=name,compute_cap,memory.total,driver_version", "--format=csv,noheader,nounits")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another number whenever Linux is started; virtual machines that go on from one picture have the same."""
_WAIT = 30.0
"""Seconds that the driver's tool may take: a hung driver is as good as none."""
_SOURCES = ("h", "hpp", "cpp", "cuh")
_HERE = Path(__file__).parent
_COUNTED = {
    _HERE: ("**/*.py", "**/requirements*.txt", *(f"numerics/**/*.{end}" for end in _SOURCES)),
    _HERE.with_name("deploy"): ("*.py",),
    DATA: ("recipes/*.toml",),
}
"""The files that are the validation, by folder."""


def here() -> Machine:
    """This machine."""
    text = _text(Path("/proc/cpuinfo"))
    said = _nvidia_smi(*_QUERY)
    cuda = re.search(r"CUDA Version: (\d+\.\d+)", _nvidia_smi()) if said else None
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_field(text, "model name") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        # x86 has flags, Arm has Features.
        flags=tuple(sorted(set((_field(text, "flags") or _field(text, "Features") or "").split()))),
        gpus=tuple(gpu for line in said.splitlines() if (gpu := gpu_of(line)) is not None),
        cuda=cuda.group(1) if cuda else None,
    )


def started() -> str:
    """This machine since it was started, by its boot and its GPUs; what it does not say is missing."""
    return " ".join([_text(_BOOT).strip(), *_nvidia_smi("--query-gpu=uuid", "--format=csv,noheader").split()])


def gpu_of(line: str) -> Gpu | None:
    """A GPU from a line of nvidia-smi: name, compute capability, MiB, driver; None where the line is no such thing."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 4 or not re.fullmatch(r"\d+\.\d+", parts[1]):
        return None
    # A GPU that shares the machine's memory says "[N/A]".
    return Gpu(parts[0], parts[1], int(parts[2]) * 2**20 if parts[2].isdigit() else None, parts[3])


def code() -> str:
    """Twelve digits that change with the validation's own code, requirements and recipes: other code, other cases."""
    counted = ((folder, path) for folder, globs in _COUNTED.items() for glob in globs for path in folder.glob(glob))
    files = sorted({f"{folder.name}/{path.relative_to(folder).as_posix()}": path for folder, path in counted}.items())
    hashes = [f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for name, path in files]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()[:12]


def _nvidia_smi(*arguments: str) -> str:
    try:
        done = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, check=False, timeout=_WAIT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(cpuinfo: str, name: str) -> str | None:
    found = re.search(rf"^{name}\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else None
