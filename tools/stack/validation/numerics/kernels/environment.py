# SPDX-License-Identifier: Apache-2.0
"""Detect what is available: packages, CPU instructions, the GPU, vLLM's operators for CPUs."""

import importlib.util
import os
import platform
from functools import cache
from pathlib import Path

from stack.validation.numerics import OPERATORS


def missing(*packages: str) -> str:
    """Return which packages are not installed, as a reason; empty if all are."""
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else ""


@cache
def operators() -> str:
    """Load vLLM's operators built for this CPU; return why there are none, or an empty text."""
    if lacking := missing("torch"):
        return lacking
    import torch  # noqa: PLC0415

    named = os.environ.get(OPERATORS, "")
    folder = Path(named) if named else _installed()
    if folder is None:
        return f"vLLM is not installed, and {OPERATORS} names no folder"
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
    """Return why vLLM's operator of this name cannot be called on this CPU; empty if it can."""
    if lacking := operators():
        return lacking
    import torch  # noqa: PLC0415

    return "" if hasattr(torch.ops._C, name) else f"vLLM's operators for this machine have no {name}"


def x86(flag: str) -> str:
    """Return why this CPU is not an x86 with these instructions (in the kernel's spelling: `avx512_bf16`); empty if it is."""
    if platform.machine() != "x86_64":
        return f"needs an x86 CPU with {flag}, this is {platform.machine()}"
    return "" if flag in Path("/proc/cpuinfo").read_text().split() else f"needs a CPU with {flag}"


@cache
def capability() -> str:
    """Return the present GPU as `sm90`, `sm121`, …; empty if there is none."""
    if missing("torch"):
        return ""
    import torch  # noqa: PLC0415

    return "sm" + "".join(map(str, torch.cuda.get_device_capability())) if torch.cuda.is_available() else ""


def gpu(*capabilities: str) -> str:
    """Return why the present GPU is not one of these (`sm90`, `sm121`, …); empty if it is."""
    if lacking := missing("torch"):
        return lacking
    here, wanted = capability(), " or ".join(capabilities)
    if here in capabilities:
        return ""
    return f"needs {wanted}, this GPU is {here}" if here else f"needs a GPU, {wanted}"


def _build() -> str:
    """Return the name of the operators' build for this CPU, by the same rule as vLLM's platform module."""
    if platform.machine() != "x86_64" or not x86("avx512_bf16"):
        return "_C"
    return "_C_AVX2" if x86("avx512f") else "_C_AVX512"


def _installed() -> Path | None:
    spec = importlib.util.find_spec("vllm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None
