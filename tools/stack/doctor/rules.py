# SPDX-License-Identifier: Apache-2.0
"""Rules for settings that apply everywhere: in this machine's environment, in a script, in a recipe."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from stack.base.errors import StackError
from stack.doctor.finding import Found, fine, note, wrong
from stack.doctor.knowledge.values import whole
from stack.proof.compiling import architecture

EACH = (5 * 10**9, 10 * 10**9)
"""Bytes that the compiler takes for one CUTLASS kernel: 3 to 8 GiB on a GB10 (flashinfer-ai/flashinfer#3634), 8.1 GB for this stack's largest,
with room for more."""
MOST_JOBS = 8
"""Number of compilers that 128 GB hold if nothing else runs (40-80 GB by `EACH`)."""
JOBS = 2
"""Number of compilers that is advised, as in the recipes: they take 10-20 GB, which a server leaves of 128 GB beside its model."""
_NORMAL = Version("0.7.0")
"""First version of FlashInfer that adds the suffix itself (compilation_context.py)."""
UNIFIED = 0.85
"""Largest --gpu-memory-utilization that is advised where CPU and GPU share the memory; rules, recipes and documents keep to it.

vllm-project/recipes#632 verified it on a DGX Spark. The rest is for the system, the page cache that loading fills (the driver may count
it as taken, vllm-project/vllm#48140), and compilers; with swap a short peak passes (vllm-project/vllm#56824). A recipe may take less.
"""
_VERIFIED = 19 * 10**9
"""Bytes that `UNIFIED` leaves of a DGX Spark's memory."""
_LEAST = 13 * 10**9
"""Bytes below which a start was seen to run out of memory: 90 % leave 12.8 GB (vllm-project/vllm#56824)."""
EAGER_COST = (
    'one owner of a Spark had 26 tok/s in place of 59 (ai-muninn.com, "gpt-oss-120B on DGX Spark", part 2); another had 57.5 with it '
    '(kubis.ai, "GPT-OSS-120B: Topology Benchmark", 2026-03-22)'
)
"""The speed of gpt-oss-120b without CUDA graphs, as others measured it: the two pages do not agree."""
COMPILED = "43 minutes for CUTLASS's in another image: spark-arena/recipe-registry issue 17"
DEFAULT = 0.92
"""Default of --gpu-memory-utilization (vllm/config/cache.py, 0.32)."""
_SHARE = re.compile(r"[0-9]?\.[0-9]{1,9}|1(?:\.0{0,9})?")


@dataclass(frozen=True, slots=True)
class Target:
    """The machine that a script is for. `memory`: bytes; `unified`: CPU and GPU share it; `available`: free bytes at present."""

    title: str
    capability: str
    memory: int
    unified: bool
    available: int | None = None


def architectures(value: str, capability: str | None, flashinfer: str | None, line: int | None = None) -> Iterator[Found]:
    """Check FLASHINFER_CUDA_ARCH_LIST. `capability`: of the GPU; `flashinfer`: its version; each is None if unknown."""
    listed = value.split()
    if odd := [item for item in listed if not _is_architecture(item)] or ([value] if not listed else []):
        yield wrong(
            f"FLASHINFER_CUDA_ARCH_LIST is {value!r}: {odd[0]!r} is not an architecture that nvcc knows",
            "write it like 12.1a, several separated by blanks",
            line,
        )
        return
    for item in listed:
        if item.startswith("12.") and item[-1].isdigit():
            fix = f"FLASHINFER_CUDA_ARCH_LIST={item}a"
            problem = f"FLASHINFER_CUDA_ARCH_LIST={item}: plain sm_{item.replace('.', '')} has no FP4 conversions (cvt.e2m1x2)"
            if _normalises(flashinfer):
                yield note(f"{problem}; this FlashInfer adds the suffix itself, other builds do not", fix, line)
            else:
                yield wrong(f"{problem}; without `a` or `f` nothing of MXFP4 compiles", fix, line)
    if capability is not None and not any(_covers(item, capability) for item in listed):
        yield wrong(
            f"FLASHINFER_CUDA_ARCH_LIST={value} has no code for this GPU, {capability}",
            f"FLASHINFER_CUDA_ARCH_LIST={capability}a",
            line,
        )


def _is_architecture(item: str) -> bool:
    return re.fullmatch(r"[0-9]{1,2}\.[0-9][af]?", item) is not None and architecture.is_known(f"sm_{item.replace('.', '')}")


def _normalises(flashinfer: str | None) -> bool:
    try:
        return flashinfer is not None and Version(flashinfer) >= _NORMAL
    except InvalidVersion:
        return False


def _covers(listed: str, capability: str) -> bool:
    """Return whether code runs on a GPU: code for a family (`f`) on later members, too, other code on its architecture only."""
    (major, minor), (own, least) = capability.split("."), listed.rstrip("af").split(".")
    if listed.endswith("f"):
        return major == own and int(minor) >= int(least)
    return (major, minor) == (own, least)


def jobs(value: str | None, memory: int, cores: int, line: int | None = None, *, has: str = "are free") -> Iterator[Found]:
    """Compare MAX_JOBS with bytes of memory. None means not set: then ninja starts two more compilers than there are cores."""
    if value is not None and not whole(value):
        yield wrong(f"MAX_JOBS is {value!r:.60}: FlashInfer takes a number, or ignores it", jobs_advice(memory), line)
        return
    count = whole(value) or cores + 2
    advised = jobs_advice(memory)
    named = f"MAX_JOBS={value}" if value is not None else f"MAX_JOBS is not set: {count} compilers at once"
    peak = f"{count * EACH[0] // 10**9}-{count * EACH[1] // 10**9} GB at 5-10 GB for each CUTLASS kernel"
    if count * EACH[0] > memory and count > 1:
        problem = f"{named} may take {peak}, {memory // 10**9} GB {has}: cicc is killed"
        yield wrong(problem, advised, line) if value is not None else note(problem, advised, line)
    elif count * EACH[1] > memory and count > 1:
        yield note(f"{named} may take {peak}, {memory // 10**9} GB {has}", advised, line)
    else:
        yield fine(f"{named}: {peak}, {memory // 10**9} GB {has}", line)


def share(arguments: Sequence[str], recipe: str) -> float | None:
    """Return the last --gpu-memory-utilization of a recipe's arguments, or vLLM's default; None for one that its user sets.

    Raises:
        StackError: it is no share of a memory.

    """
    flag, found = "--gpu-memory-utilization", str(DEFAULT)
    for place, word in enumerate(arguments):
        if word == flag:
            found = arguments[place + 1] if place + 1 < len(arguments) else ""
        elif word.startswith(f"{flag}="):
            found = word.partition("=")[2]
    if found.startswith("$"):
        return None
    if not _SHARE.fullmatch(found) or not 0 < float(found) <= 1:
        raise StackError(f"recipe {recipe}: {flag} is {found!r:.60}", "write a share of the memory, such as 0.7")
    return float(found)


def jobs_advice(memory: int | None = None) -> str:
    """Return the one number of compilers that is advised, with its reason; `memory`: bytes that there are, None if unknown."""
    count = JOBS if memory is None else max(1, min(JOBS, memory // EACH[1]))
    compilers = "one compiler takes" if count == 1 else f"{count} compilers take"
    return f"MAX_JOBS={count}: {compilers} {count * EACH[0] // 10**9}-{count * EACH[1] // 10**9} GB, and the model needs memory, too"


def utilization(share: float, memory: int, available: int | None, line: int | None = None) -> Iterator[Found]:
    """Check --gpu-memory-utilization if CPU and GPU share `memory` bytes, with `available` free (None if unknown)."""
    taken = share * memory
    default = "vLLM's default, " if share == DEFAULT else ""
    named = f"{default}--gpu-memory-utilization {share:g}"
    room = memory - taken
    fitting = min(UNIFIED, int((memory - _VERIFIED) / memory * 20) / 20)
    if available is not None and taken > available:
        yield wrong(
            f"{named} wants {taken / 10**9:.0f} GB, {available / 10**9:.0f} GB of the memory that CPU and GPU "
            "share are free: vLLM does not start",
            "end what takes memory (free -h), if it is not this very server, or write less",
            line,
        )
    elif room < _LEAST:
        yield wrong(
            f"{named} leaves {room / 10**9:.0f} GB of a memory that CPU and GPU share: "
            "loading and compiling kernels run out of it",
            f"--gpu-memory-utilization {fitting:g}",
            line,
        )
    elif room < _VERIFIED:
        yield note(
            f"{named} leaves {room / 10**9:.0f} GB of a memory that CPU and GPU share: {UNIFIED:g} was verified on a "
            "DGX Spark, more is tight while kernels are compiled",
            f"--gpu-memory-utilization {fitting:g}",
            line,
        )
    else:
        yield fine(f"{named} leaves {room / 10**9:.0f} GB of the memory that CPU and GPU share", line)
