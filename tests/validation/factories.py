# SPDX-License-Identifier: Apache-2.0
"""Verdicts, as the tests of this folder need them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from stack import __version__
from stack.model import digest
from stack.model.ids import Sha256
from stack.model.stack import Stack
from stack.model.verdict import Case, Gpu, Machine, Outcome, Pinned, Verdict, write
from stack.validation import gates, machine

STACK = Sha256("a" * 64)
PINS = {"vllm": Pinned("5df63a720", "v0.32.0")}
VERSIONS = {"stack": __version__, "validation": machine.code(), "torch": "2.13.0"}
RELEASE = gates.Release(STACK, PINS, {}, {name: VERSIONS[name] for name in ("stack", "validation")}, None)
"""The release of most verdicts here; its validation defines any case."""
CPU = Machine("Linux 6.11", "x86_64", "EPYC", 2, 24_000_000_000, ("avx512_bf16",))
SPARK = replace(CPU, gpus=(Gpu("NVIDIA GB10", "12.1", None, "590.48.01"),), cuda="13.1")

CPU_GATE = """\
[cpu]
has = ["cpu"]
[[cpu.cases]]
names = "kernels/*"
least = 2
[[cpu.cases]]
names = "serve/*"
least = 1
"""


def passed(name: str, *needs: str, **measured: float | str) -> Case:
    return Case(name, Outcome.PASSED, needs=needs, measured=measured, margins={"good": 2.5})


def failed(name: str, *needs: str) -> Case:
    return Case(name, Outcome.FAILED, "it is wrong\nlast lines", needs)


def not_run(name: str, *needs: str) -> Case:
    return Case(name, Outcome.NOT_RUN, "no such machine", needs)


def verdict(*cases: Case, machine: Machine = CPU, **fields: Any) -> Verdict:
    made = Verdict(STACK, PINS, "2026-11-21T21:40:00Z", machine, VERSIONS, cases)
    return replace(made, **fields)


def of(carried: Stack, *cases: Case, **fields: Any) -> Verdict:
    """A verdict of a stack."""
    pins = {pin.upstream: Pinned(pin.commit, pin.tag) for pin in carried.pins}
    return verdict(*cases, **{"stack": digest.of(carried), "pins": pins, **fields})


ONE, TWO, CHAT = "kernels/formats/e4m3-decode/torch", "kernels/formats/e2m1-decode/ml_dtypes", "serve/cpu-fp32/chat/whole"
"""Cases that the validation defines."""


def exact(name: str, **measured: float | str) -> Case:
    """A case of formats that passed as such cases do."""
    compared = {"compared": 65536, "differing": 0, **measured}
    return Case(
        name,
        Outcome.PASSED,
        needs=("cpu",),
        measured=compared,
        bar=0,
        margins={"differing in the nearest wrong output": 7},
    )


def answered(name: str = CHAT) -> Case:
    """A case of a server that passed."""
    return Case(name, Outcome.PASSED, needs=("cpu",))


def file(folder: Path, name: str, one: Verdict) -> Path:
    path = folder / name
    path.write_bytes(write(one))
    return path
