# SPDX-License-Identifier: Apache-2.0
"""What this machine and this Python have: packages, instructions of the CPU, the GPU, vLLM's operators for CPUs."""

import importlib.util
import os
import platform
from functools import cache
from pathlib import Path

from stack.validation.numerics import OPERATORS


def missing(*packages: str) -> str:
    """Which packages are not installed, as a reason; empty where all are."""
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else ""


@cache
def operators() -> str:
    """Load vLLM's operators for CPUs, built for this CPU; why there are none, or nothing."""
    if lacking := missing("torch"):
        return lacking
    import torch  # noqa: PLC0415

    named = os.environ.get(OPERATORS, "")
    folder = Path(named) if named else _installed()
    if folder is None:
        return f"no vLLM is installed, and {OPERATORS} names no folder"
    if not folder.is_dir():
        return named
    library = folder / f"{_build()}.abi3.so"
    if not library.exists():
        return f"{folder} has no {library.name}"
    try:
        torch.ops.load_library(str(library))
    except OSError as failed:
        return f"{library.name} does not load: {' '.join(str(failed).split())}"
    return ""


def operator(name: str) -> str:
    """Why vLLM's operator of this name cannot be called on this CPU, or nothing."""
    if lacking := operators():
        return lacking
    import torch  # noqa: PLC0415

    return "" if hasattr(torch.ops._C, name) else f"vLLM's operators for this machine have no {name}"


def x86(flag: str) -> str:
    """Why this CPU is no x86 with these instructions (as the kernel names them: `avx512_bf16`), or nothing."""
    if platform.machine() != "x86_64":
        return f"needs an x86 CPU with {flag}, this is {platform.machine()}"
    return "" if flag in Path("/proc/cpuinfo").read_text().split() else f"needs a CPU with {flag}"


@cache
def capability() -> str:
    """The GPU at hand as `sm90`, `sm121`, …; empty where there is none."""
    if missing("torch"):
        return ""
    import torch  # noqa: PLC0415

    return "sm" + "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""


def gpu(*capabilities: str) -> str:
    """Why the GPU at hand is none of these (`sm90`, `sm121`, …), or nothing."""
    if lacking := missing("torch"):
        return lacking
    here, wanted = capability(), " or ".join(capabilities)
    if here in capabilities:
        return ""
    return f"needs {wanted}, this GPU is {here}" if here else f"needs a GPU, {wanted}"


def _build() -> str:
    """The build of the operators for this CPU: the same choice as vLLM's own platform module makes."""
    if platform.machine() != "x86_64" or not x86("avx512_bf16"):
        return "_C"
    return "_C_AVX2" if x86("avx512f") else "_C_AVX512"


def _installed() -> Path | None:
    found = importlib.util.find_spec("vllm")
    return Path(found.origin).parent if found is not None and found.origin else None
