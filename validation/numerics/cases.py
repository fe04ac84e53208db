# SPDX-License-Identifier: Apache-2.0
"""The cases: which kernel computes which problem, held against which bar. A case says itself where a shape is reduced.

A bar lies between the error of a good kernel and the nearest mutant's. bfloat16 has 8 bits: an output rounded to it is off by 1.7e-3
in rel-L2, and by 4e-3 where what is between two multiplications is rounded, too. The nearest mutants begin at 5e-2. float32's are of
the order of 1e-7. A bar of 1e-2 (1e-5) is at least twice the good kernel's error; every run measures both margins again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from validation.numerics.agreement import AGREEMENTS, Agreement
from validation.numerics.attention import Attention
from validation.numerics.experts import Experts
from validation.numerics.kernels import Kernel, cpu, cuda
from validation.numerics.linear import Linear

SUITE = "kernels"

BFLOAT16_BAR = 1e-2
FLOAT32_BAR = 1e-5
MXFP8_BAR = 4e-2

TOKENS = (1, 2, 4, 8, 33, 128, 1000)
WINDOW = 128

LARGE = 10**9
"""Elements of the second weight above which a case runs beside no other such: all experts in full size have as many."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel on one problem. `reduced` says where it is smaller than gpt-oss-120b's own, empty where it is not."""

    name: str
    kernel: Kernel[Any]
    problem: Experts | Attention | Linear
    bar: float
    reduced: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """What a machine must have."""
        return self.kernel.needs

    @property
    def seconds(self) -> float:
        """What it may take."""
        return self.kernel.seconds

    @property
    def alone(self) -> bool:
        """Whether it must not run beside another such: its weights would fill the memory."""
        problem = self.problem
        return isinstance(problem, Experts) and problem.experts * problem.hidden * problem.intermediate > LARGE


@dataclass(frozen=True, slots=True)
class Same:
    """Our formats bit for bit against another library's."""

    name: str
    agreement: Agreement
    needs = ("cpu",)
    seconds = 600.0
    alone = False


AnyCase = Case | Same


def declared() -> tuple[AnyCase, ...]:
    """Every case, the longest of those that run on a CPU first."""
    return (*_experts(), *_linear(), *_attention(), *_formats(), *_gpu())


def named(*globs: str) -> tuple[AnyCase, ...]:
    """The cases whose names match one of these, all where there are none."""
    return tuple(one for one in declared() if not globs or any(fnmatchcase(one.name, glob) for glob in globs))


def _formats() -> Iterator[AnyCase]:
    for one in AGREEMENTS:
        yield Same(f"{SUITE}/formats/{one.name}", one)


_EXPERTS = (
    (Experts(1), ""),
    (Experts(1000, experts=8, intermediate=704), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(128, experts=8), "8 of 128 experts"),
    (Experts(33, experts=8), "8 of 128 experts"),
    (Experts(1000, intermediate=192), "a fifteenth of the intermediate size"),
    (Experts(8, experts=8), "8 of 128 experts"),
    (Experts(4, experts=8), "8 of 128 experts"),
    (Experts(2, experts=8), "8 of 128 experts"),
)
_REFERENCE_EXPERTS = Experts(33, experts=16, intermediate=192)


def _experts() -> Iterator[AnyCase]:
    kernel, reference = cpu.EXPERTS
    for problem, reduced in _EXPERTS:
        yield Case(_name("moe", kernel, f"experts={problem.experts}", problem), kernel, problem, BFLOAT16_BAR, reduced)
    problem, reduced = _REFERENCE_EXPERTS, "16 of 128 experts, a fifteenth of the intermediate size"
    yield Case(_name("moe", reference, f"experts={problem.experts}", problem), reference, problem, FLOAT32_BAR, reduced)


def _linear() -> Iterator[AnyCase]:
    plain, single, onednn = cpu.LINEAR
    for tokens in (1, 8):
        head = Linear(tokens, 2880, 201088, bias=False)
        yield Case(_name("linear", plain, "lm_head", head), plain, head, BFLOAT16_BAR)
    for tokens in TOKENS:
        qkv, output = Linear(tokens, 2880, 5120), Linear(tokens, 4096, 2880)
        yield Case(_name("linear", onednn, "qkv", qkv), onednn, qkv, BFLOAT16_BAR)
        yield Case(_name("linear", plain, "o", output), plain, output, BFLOAT16_BAR)
    router = Linear(33, 2880, 128)
    yield Case(_name("linear", onednn, "router", router), onednn, router, BFLOAT16_BAR)
    for weight in ("mxfp4", "mxfp8", "nvfp4"):
        twin = Linear(33, 2880, 5120, weight)
        yield Case(_name("linear", plain, f"qkv/{weight}-twin", twin), plain, twin, BFLOAT16_BAR)
        seen = Linear(8, 2880, 5120, weight, activations="nvfp4" if weight == "nvfp4" else "mxfp8")
        yield Case(_name("linear", single, f"qkv/{weight}-{seen.activations}", seen), single, seen, FLOAT32_BAR)


DECODE = ((1, 1), (1, 2), (1, 127), (1, 128), (1, 129), (1, 130), (1, 1000), (1, 2049))
CHUNK = ((33, 1000), (1, 300), (128, 128))
PREFILL = ((1000, 1000),)
LONG = ((1, 16_385),)
"""For the window only: over so many keys a missing sink drowns in rounding, so that no bar would see it."""
_BATCHES = {"prefill": PREFILL, "decode": DECODE, "chunk": CHUNK}


def _attention() -> Iterator[AnyCase]:
    sixteen, eight, reference = cpu.ATTENTION
    for batch, sequences in _BATCHES.items():
        for window in (WINDOW, None):
            # Its cache rounds to E4M3 towards zero, where every GPU kernel rounds to the nearest: docs/validate.md.
            for kernel, cache in ((sixteen, "bfloat16"), (eight, "e4m3-cut")):
                problem = Attention(sequences, window, cache)
                yield Case(_attention_name(kernel, batch, problem), kernel, problem, BFLOAT16_BAR)
            if batch != "prefill":
                problem = Attention(sequences, window)
                yield Case(_attention_name(reference, batch, problem), reference, problem, FLOAT32_BAR)
    far = Attention(LONG, WINDOW)
    yield Case(_attention_name(sixteen, "long", far), sixteen, far, BFLOAT16_BAR)


def _gpu() -> Iterator[AnyCase]:
    for mixture in cuda.EXPERTS:
        for problem, reduced in _EXPERTS:
            experts = replace(problem, activations=cuda.activations(mixture))
            bar = MXFP8_BAR if experts.activations == "mxfp8" else BFLOAT16_BAR
            yield Case(_name("moe", mixture, f"experts={experts.experts}", experts), mixture, experts, bar, reduced)
    for dense in cuda.LINEAR:
        for tokens in TOKENS:
            for name, inputs, outputs in (("qkv", 2880, 5120), ("o", 4096, 2880)):
                layer = Linear(tokens, inputs, outputs, cuda.weight(dense))
                yield Case(_name("linear", dense, name, layer), dense, layer, BFLOAT16_BAR)
    for attends in cuda.ATTENTION:
        for batch, sequences in _BATCHES.items():
            for window in (WINDOW, None):
                for cache in ("bfloat16", "e4m3"):
                    attention = Attention(sequences, window, cache, page=16)
                    yield Case(_attention_name(attends, batch, attention), attends, attention, BFLOAT16_BAR)


def _name(kind: str, kernel: Kernel[Any], what: str, problem: Experts | Linear) -> str:
    size = f"/intermediate={problem.intermediate}" if isinstance(problem, Experts) and problem.intermediate != 2880 else ""
    return f"{SUITE}/{kind}/{kernel.name}/{what}{size}/m={problem.tokens}"


def _attention_name(kernel: Kernel[Any], batch: str, problem: Attention) -> str:
    window = f"window={problem.window}" if problem.window else "full"
    return f"{SUITE}/attention/{kernel.name}/{batch}/{window}/kv={problem.cache}"
