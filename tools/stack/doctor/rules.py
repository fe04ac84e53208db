# SPDX-License-Identifier: Apache-2.0
"""What holds wherever a setting stands: in this machine's environment, in a script, in a recipe."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from stack.doctor.finding import Found, fine, note, wrong

EACH = (5 * 10**9, 10 * 10**9)
"""Bytes that the compiler takes for one CUTLASS kernel: least and most that were measured."""
MOST_JOBS = 8
"""What 128 GB bear while nothing else runs there (50-80 GB)."""
_NORMAL = Version("0.7.0")
"""FlashInfer from here on puts the suffix there by itself (compilation_context.py)."""
_KEPT = 24 * 10**9
"""Bytes of a unified memory that the system, the file cache and the server's own processes want; the recipes' 70 % leave 38 GB."""
DEFAULT = 0.92
"""--gpu-memory-utilization where it is not given (vllm/config/cache.py, 0.32)."""


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that a script is for. `memory`: bytes; `unified`: CPU and GPU share it; `available`: bytes that are free there now."""

    title: str
    capability: str
    memory: int
    unified: bool
    available: int | None = None


def architectures(value: str, capability: str | None, flashinfer: str | None, line: int | None = None) -> Iterator[Found]:
    """FLASHINFER_CUDA_ARCH_LIST. `capability`: of the GPU; `flashinfer`: its version; None where they are not known."""
    listed = value.split()
    if odd := [one for one in listed if not re.fullmatch(r"\d+\.\d[af]?", one)] or ([value] if not listed else []):
        yield wrong(
            f"FLASHINFER_CUDA_ARCH_LIST is {value!r}: {odd[0]!r} is no architecture",
            "write it like 12.1a, several with blanks",
            line,
        )
        return
    for one in listed:
        if one.startswith("12.") and one[-1].isdigit():
            fix = f"FLASHINFER_CUDA_ARCH_LIST={one}a"
            said = f"FLASHINFER_CUDA_ARCH_LIST={one}: plain sm_{one.replace('.', '')} has no FP4 conversions (cvt.e2m1x2)"
            if _normalises(flashinfer):
                yield note(f"{said}; this FlashInfer adds the suffix itself, other builds do not", fix, line)
            else:
                yield wrong(f"{said}; without `a` or `f` nothing of MXFP4 compiles", fix, line)
    if capability is not None and not any(_covers(one, capability) for one in listed):
        yield wrong(
            f"FLASHINFER_CUDA_ARCH_LIST={value} has no code for this GPU, {capability}",
            f"FLASHINFER_CUDA_ARCH_LIST={capability}a",
            line,
        )


def _normalises(flashinfer: str | None) -> bool:
    try:
        return flashinfer is not None and Version(flashinfer) >= _NORMAL
    except InvalidVersion:
        return False


def _covers(listed: str, capability: str) -> bool:
    """Code for a family (`f`) runs on later members of it, other code on its own architecture only."""
    (major, minor), (own, least) = capability.split("."), listed.rstrip("af").split(".")
    if listed.endswith("f"):
        return major == own and int(minor) >= int(least)
    return (major, minor) == (own, least)


def jobs(value: str | None, memory: int, cores: int, line: int | None = None, *, has: str = "are free") -> Iterator[Found]:
    """MAX_JOBS (None: not set, then ninja starts as many compilers as there are cores and two) against bytes of memory."""
    if value is not None and not (value.isascii() and value.isdigit() and int(value)):
        yield wrong(f"MAX_JOBS is {value!r}: FlashInfer takes a number, or ignores it", "MAX_JOBS=2", line)
        return
    count = int(value) if value is not None else cores + 2
    fits = max(1, memory // EACH[1])
    named = f"MAX_JOBS={value}" if value is not None else f"MAX_JOBS is not set: {count} compilers at once"
    peak = f"{count * EACH[0] // 10**9}-{count * EACH[1] // 10**9} GB at 5-10 GB for each CUTLASS kernel"
    if count * EACH[0] > memory and count > 1:
        said = f"{named} may take {peak}, {memory // 10**9} GB {has}: cicc is killed"
        yield wrong(said, f"MAX_JOBS={fits}", line) if value is not None else note(said, f"MAX_JOBS={fits}", line)
    elif count * EACH[1] > memory and count > 1:
        yield note(f"{named} may take {peak}, {memory // 10**9} GB {has}", f"MAX_JOBS={fits}", line)
    else:
        yield fine(f"{named}: {peak}, {memory // 10**9} GB {has}", line)


def utilization(share: float, memory: int, available: int | None, line: int | None = None) -> Iterator[Found]:
    """--gpu-memory-utilization where CPU and GPU share `memory` bytes, of which `available` are free (None: not known)."""
    taken = share * memory
    room = memory - taken
    fitting = int((memory - _KEPT) / memory * 20) / 20
    if available is not None and taken > available:
        yield wrong(
            f"--gpu-memory-utilization {share:g} wants {taken / 10**9:.0f} GB, {available / 10**9:.0f} GB of the memory that CPU and GPU "
            "share are free: vLLM does not start",
            "end what takes memory (free -h), if it is not this very server, or write less",
            line,
        )
    elif room < _KEPT:
        yield wrong(
            f"--gpu-memory-utilization {share:g} leaves {room / 10**9:.0f} GB of a memory that CPU and GPU share: "
            "loading and compiling kernels run out of it",
            f"--gpu-memory-utilization {fitting:g}",
            line,
        )
    else:
        yield fine(
            f"--gpu-memory-utilization {share:g} leaves {room / 10**9:.0f} GB of the memory that CPU and GPU share", line
        )
