# SPDX-License-Identifier: Apache-2.0
"""Verdicts, as the tests of this folder need them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from stack.model.ids import Sha256
from stack.model.verdict import Case, Gpu, Machine, Outcome, Pinned, Verdict, write

STACK = Sha256("a" * 64)
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
    made = Verdict(STACK, {"vllm": Pinned("5df63a720", "v0.32.0")}, "2026-11-21T21:40:00Z", machine, {"torch": "2.13.0"}, cases)
    return replace(made, **fields)


def file(folder: Path, name: str, one: Verdict) -> Path:
    path = folder / name
    path.write_bytes(write(one))
    return path
