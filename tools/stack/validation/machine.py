# SPDX-License-Identifier: Apache-2.0
"""Describe the machine of a validation: CPU, memory, GPUs, driver, and a hash of the validation's own code."""

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
"""An id that changes with each start of Linux. Virtual machines that resume from one snapshot share it."""
_WAIT = 30.0
"""Seconds that nvidia-smi may take; if the driver hangs, no GPU is reported."""
_SOURCES = ("h", "hpp", "cpp", "cuh")
_HERE = Path(__file__).parent
_COUNTED = {
    _HERE: ("**/*.py", "**/requirements*.txt", *(f"numerics/**/*.{end}" for end in _SOURCES)),
    _HERE.with_name("deploy"): ("*.py",),
    DATA: ("recipes/*.toml",),
}
"""The files that make up the validation, by folder."""


def here() -> Machine:
    """Describe this machine."""
    text = _text(Path("/proc/cpuinfo"))
    listed = _nvidia_smi(*_QUERY)
    cuda = re.search(r"CUDA Version: (\d+\.\d+)", _nvidia_smi()) if listed else None
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        cpu=_field(text, "model name") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        # /proc/cpuinfo names them "flags" on x86 and "Features" on Arm.
        flags=tuple(sorted(set((_field(text, "flags") or _field(text, "Features") or "").split()))),
        gpus=tuple(gpu for line in listed.splitlines() if (gpu := gpu_of(line)) is not None),
        cuda=cuda.group(1) if cuda else None,
    )


def started() -> str:
    """Identify this machine's current uptime by its boot id and GPU ids; an unreadable part is left out."""
    return " ".join([_text(_BOOT).strip(), *_nvidia_smi("--query-gpu=uuid", "--format=csv,noheader").split()])


def gpu_of(line: str) -> Gpu | None:
    """Parse a line of nvidia-smi: name, compute capability, MiB, driver. Return None for any other line."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) != 4 or not re.fullmatch(r"\d+\.\d+", parts[1]):
        return None
    # A GPU that shares the machine's memory reports "[N/A]".
    return Gpu(parts[0], parts[1], int(parts[2]) * 2**20 if parts[2].isdigit() else None, parts[3])


def code() -> str:
    """Hash the validation's code, requirements and recipes into twelve digits; a change may change its cases."""
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
