# SPDX-License-Identifier: Apache-2.0
"""The cases: which kernel computes which problem, held against which bar. A case says itself where a shape is reduced.

A bar lies between the error of a good kernel and the nearest mutant's. bfloat16 has 8 bits: an output rounded to it is off by 1.7e-3
in rel-L2, and by 4e-3 where what is between two multiplications is rounded, too. The nearest mutants begin at 5e-2. float32's are of
the order of 1e-7. A bar of 1e-2 (1e-5) is at least twice the good kernel's error; every run measures both margins again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from stack.validation.numerics import sanitizing
from stack.validation.numerics.agreement import AGREEMENTS, Agreement
from stack.validation.numerics.attention import Attention
from stack.validation.numerics.experts import OSS, Experts, Glu
from stack.validation.numerics.grouped import Grouped
from stack.validation.numerics.kernels import Kernel, cpu, cuda, decode, emulated, sm120_on_sm90
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.sanitizing import Sanitized
from stack.validation.numerics.sm120_on_sm90 import LIBRARY

SUITE = "kernels"

BFLOAT16_BAR = 1e-2
FLOAT32_BAR = 1e-5
MXFP8_BAR = 4e-2
IDEAL_BAR = 1.05
"""Times the rel-L2 of a kernel that takes bfloat16, accumulates exactly and rounds what it multiplies and what it returns."""

TOKENS = (1, 2, 4, 8, 33, 128, 1000)
WINDOW = 128

LARGE = 10**9
"""Elements of the second weight above which a case runs beside no other such: all experts in full size have as many."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel on one problem. `reduced` says where it is smaller than gpt-oss-120b's own, empty where it is not."""

    name: str
    kernel: Kernel[Any]
    problem: Experts | Attention | Linear | Grouped
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
class BesideIdeal(Case):
    """A kernel that has to be as good as its formats allow: the bar is in units of an ideal kernel's error, computed in the run."""

    problem: Experts | Linear


@dataclass(frozen=True, slots=True)
class Same:
    """Our formats bit for bit against another library's."""

    name: str
    agreement: Agreement
    seconds = 600.0
    alone = False

    @property
    def needs(self) -> tuple[str, ...]:
        """What a machine must have."""
        return self.agreement.needs


AnyCase = Case | Same | Sanitized


def declared() -> tuple[AnyCase, ...]:
    """Every case, the longest of those that run on a CPU first; those of SM120 on SM90 where they were asked for."""
    return everything() if LIBRARY in os.environ else _usual()


def everything() -> tuple[AnyCase, ...]:
    """Every case that can be asked for."""
    return (*_usual(), *_grouped())


def _usual() -> tuple[AnyCase, ...]:
    gpu = (*_gpu(), *_decode(), *sanitizing.declared())
    return (*_experts(), *_emulated(), *_linear(), *_attention(), *_formats(), *gpu)


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


_FEW_EXPERTS = Experts(8, experts=8, hidden=192, intermediate=160)
"""Neither size is a whole number of the kernels' steps of 128 columns."""
_FEW_EXPERTS_SAID = "8 of 128 experts, a fifteenth of the hidden size, an eighteenth of the intermediate size"
_GLU = Glu(alpha=1.5, beta=1.5, limit=5.0)
"""No number of it is gpt-oss's, or 1."""
_DECODE_TOKENS = (1, 2, 4, 8, 9, 16)
_DECODE_EXPERTS = {
    "one-choice": replace(_FEW_EXPERTS, top=1),
    "eight-choices": replace(_FEW_EXPERTS, experts=16, top=8),
    "same-choice-twice": replace(_FEW_EXPERTS, experts=4, tokens=16, twice=True),
    "most-experts-idle": replace(_FEW_EXPERTS, experts=64, tokens=2),
    "experts-elsewhere": replace(_FEW_EXPERTS, elsewhere=3),
    "no-bias": replace(_FEW_EXPERTS, bias=False),
    "another-activation": replace(_FEW_EXPERTS, glu=_GLU),
}
_CHOOSING = {
    **{
        f"experts={problem.experts}": problem
        for problem in (replace(_FEW_EXPERTS, tokens=1), replace(_FEW_EXPERTS, experts=160))
    },
    **{name: _DECODE_EXPERTS[name] for name in ("one-choice", "eight-choices", "experts-elsewhere")},
}
"""The kernels look at 128 logits at a time; a token alone is a way of its own."""
_DEEP = (Experts(2, experts=8, intermediate=64), Experts(16, experts=8, intermediate=64), Experts(2, experts=8, hidden=64))
"""One size is gpt-oss's own: more columns than the kernels have in registers at a time, and more than 99 KB have room for."""


def _emulated() -> Iterator[AnyCase]:
    """FlashInfer's kernels for few tokens, run on the CPU."""
    full, kernel = Experts(4, experts=4), emulated.wide(2944, 2944)
    yield BesideIdeal(_name("moe", kernel, "stored=2944/experts=4", full), kernel, full, IDEAL_BAR, "4 of 128 experts")
    for name, problem in _DECODE_EXPERTS.items():
        yield BesideIdeal(
            _name("moe", emulated.EXPERTS, name, problem), emulated.EXPERTS, problem, IDEAL_BAR, _FEW_EXPERTS_SAID
        )
    for tokens in _DECODE_TOKENS:
        for stored, kernel in (("192x160", emulated.EXPERTS), ("256x288", emulated.wide(256, 288))):
            few = replace(_FEW_EXPERTS, tokens=tokens)
            yield BesideIdeal(_name("moe", kernel, f"stored={stored}", few), kernel, few, IDEAL_BAR, _FEW_EXPERTS_SAID)
    for name, problem in _CHOOSING.items():
        yield BesideIdeal(
            _name("moe", emulated.CHOOSING, name, problem), emulated.CHOOSING, problem, IDEAL_BAR, _FEW_EXPERTS_SAID
        )
    for deep in _DEEP:
        size = f"hidden={deep.hidden}"
        reduced = "8 of 128 experts, one of the sizes 64"
        yield BesideIdeal(_name("moe", emulated.EXPERTS, size, deep), emulated.EXPERTS, deep, IDEAL_BAR, reduced)
    for name, layer, reduced in _decode_layers():
        yield BesideIdeal(_name("linear", emulated.DENSE, name, layer), emulated.DENSE, layer, IDEAL_BAR, reduced)
    for agreement in emulated.agreements():
        yield Same(f"{SUITE}/quantizer/{agreement.name}", agreement)


_MANY_ROWS = Linear(2, 160, 33810, "mxfp4", bias=False)
"""The kernel's blocks are smaller where they are many for the GPU's multiprocessors, 48 or 132; neither size is a whole number of them."""
_MANY_ROWS_SAID = "a sixth of lm_head's rows, an 18th of its columns"
_FEW_ROWS = Linear(2, 5152, 56, "mxfp4")
"""And others where they are fewer than those; more columns than are in registers at a time."""
_FEW_ROWS_SAID = "56 rows and 5152 columns, neither a whole number of steps"


def _decode_layers() -> Iterator[tuple[str, Linear, str]]:
    yield "qkv", Linear(1, 2880, 5120, "mxfp4"), ""
    yield "o", Linear(8, 4096, 2880, "mxfp4"), ""
    yield "lm_head", _MANY_ROWS, _MANY_ROWS_SAID
    for tokens in _DECODE_TOKENS:
        yield "odd", replace(_FEW_ROWS, tokens=tokens), _FEW_ROWS_SAID


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


_DECODED = (
    (Experts(1), ""),
    *((Experts(tokens, experts=8), "8 of 128 experts") for tokens in (1, 2, 4, 8, 16)),
    (Experts(16, experts=8, intermediate=736), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(16, experts=8, elsewhere=3), "8 of 128 experts, of which five are here"),
    (Experts(8, experts=8, intermediate=736, glu=_GLU), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(16, experts=8, hidden=8192, intermediate=64), "8 of 128 experts, a 45th of the intermediate size"),
)
"""Sizes that are no multiple of 64, all tokens that there may be, a part of the experts by a map, another activation, and more than a
block's shared memory has room for at a time, 227 KB or less."""


def _decode() -> Iterator[AnyCase]:
    for mixture in decode.EXPERTS:
        for experts, reduced in _DECODED:
            name = _name("moe", mixture, f"experts={experts.experts}", experts)
            name += f"/hidden={experts.hidden}" if experts.hidden != 2880 else ""
            name += f"/elsewhere={experts.elsewhere}" if experts.elsewhere else ""
            name += "/another-activation" if experts.glu != OSS else ""
            yield BesideIdeal(name, mixture, experts, IDEAL_BAR, reduced)
    for dense in decode.LINEAR:
        for tokens in (1, 2, 4, 8, 16):
            for what, inputs, outputs in (("qkv", 2880, 5120), ("o", 4096, 2880)):
                layer = Linear(tokens, inputs, outputs, "mxfp4")
                yield BesideIdeal(_name("linear", dense, what, layer), dense, layer, IDEAL_BAR)
        for tokens in (1, 16):
            head = Linear(tokens, 2880, 201088, "mxfp4", bias=False)
            yield BesideIdeal(_name("linear", dense, "lm_head", head), dense, head, IDEAL_BAR)
            for rows, reduced in ((_FEW_ROWS, _FEW_ROWS_SAID), (_MANY_ROWS, _MANY_ROWS_SAID)):
                layer = replace(rows, tokens=tokens)
                name = _name("linear", dense, f"rows={layer.outputs}", layer)
                yield BesideIdeal(name, dense, layer, IDEAL_BAR, reduced)
    for agreement in decode.AGREEMENTS:
        yield Same(f"{SUITE}/formats/{agreement.name}", agreement)


_FEW = (1, 0, 3, 8, 17, 32, 2, 130)
_MANY = (700, 0, 131, 1)


def _grouped() -> Iterator[AnyCase]:
    for kernel in sm120_on_sm90.GROUPED:
        for what, tokens, outputs in (("gate_up", _FEW, 5760), ("down", _FEW, 2880), ("down", _MANY, 2880)):
            problem = Grouped(tokens, 2880, outputs)
            name = f"{SUITE}/grouped/{kernel.name}/{what}/groups={len(tokens)}/m={problem.tokens}"
            yield Case(name, kernel, problem, BFLOAT16_BAR, f"{len(tokens)} of 128 experts")


def _name(kind: str, kernel: Kernel[Any], what: str, problem: Experts | Linear) -> str:
    size = f"/intermediate={problem.intermediate}" if isinstance(problem, Experts) and problem.intermediate != 2880 else ""
    return f"{SUITE}/{kind}/{kernel.name}/{what}{size}/m={problem.tokens}"


def _attention_name(kernel: Kernel[Any], batch: str, problem: Attention) -> str:
    window = f"window={problem.window}" if problem.window else "full"
    return f"{SUITE}/attention/{kernel.name}/{batch}/{window}/kv={problem.cache}"
