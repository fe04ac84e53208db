# SPDX-License-Identifier: Apache-2.0
"""The cases: each runs a kernel on a problem and compares it with a bar. `reduced` says which shapes are smaller than the model's.

A bar lies between the error of a good kernel and that of the nearest mutant. bfloat16 has 8 significant bits: rounding an output to it
gives a rel-L2 of 1.7e-3, and 4e-3 if the value between two multiplications is rounded, too. The nearest mutants begin at 5e-2. Errors
of float32 are of the order of 1e-7. A bar of 1e-2 (1e-5) is at least twice a good kernel's error. Each run measures both margins.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from stack.validation.numerics import SM120_ON_SM90, range_cases, sanitizing
from stack.validation.numerics.agreement import AGREEMENTS, Agreement
from stack.validation.numerics.attention import Attention
from stack.validation.numerics.experts import OSS, Experts, Glu
from stack.validation.numerics.grouped import Grouped
from stack.validation.numerics.kernels import Kernel, cpu, cuda, decode, emulated, prefill, sm120_on_sm90
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.routes import Many
from stack.validation.numerics.sanitizing import Sanitized

SUITE = "kernels"

BFLOAT16_BAR = 1e-2
FLOAT32_BAR = 1e-5
MXFP8_BAR = 4e-2
IDEAL_BAR = 1.05
"""Multiple of the rel-L2 of an ideal kernel: it takes bfloat16, accumulates exactly, and rounds its factors and its output."""

TOKENS = (1, 2, 4, 8, 33, 128, 1000)
WINDOW = 128

LARGE = 10**9
"""Elements of the second weight above which only one case runs at a time. A case with all experts in full size exceeds it."""


@dataclass(frozen=True, slots=True)
class KernelCase:
    """A kernel on a problem. `reduced` says what is smaller than in gpt-oss-120b; empty for the full size."""

    name: str
    kernel: Kernel[Any]
    problem: Experts | Attention | Linear | Grouped
    bar: float
    reduced: str = ""

    @property
    def needs(self) -> tuple[str, ...]:
        """Features that a machine must have."""
        return self.kernel.needs

    @property
    def seconds(self) -> float:
        """Time limit."""
        return self.kernel.seconds

    @property
    def alone(self) -> bool:
        """Whether no other case with large weights may run at the same time: together they would fill the memory."""
        problem = self.problem
        return isinstance(problem, Experts) and problem.experts * problem.hidden * problem.intermediate > LARGE


@dataclass(frozen=True, slots=True)
class BesideIdeal(KernelCase):
    """A case whose bar is a multiple of an ideal kernel's error, which the run computes."""

    problem: Experts | Linear


@dataclass(frozen=True, slots=True)
class Same:
    """A bitwise comparison of our formats with another library."""

    name: str
    agreement: Agreement
    seconds = 600.0
    alone = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Features that a machine must have."""
        return self.agreement.needs


AnyCase = KernelCase | Same | Sanitized


def declared() -> tuple[AnyCase, ...]:
    """List the cases to run, longest CPU cases first; SM120's kernels on SM90 only if their library is given."""
    return everything() if SM120_ON_SM90 in os.environ else _usual()


def everything() -> tuple[AnyCase, ...]:
    """List every case that can be requested."""
    return (*_usual(), *_grouped())


def _usual() -> tuple[AnyCase, ...]:
    gpu = (*_gpu(), *_decode(), *_prefill(), *sanitizing.declared())
    return (*_experts(), *_emulated(), *_linear(), *_attention(), *_formats(), *gpu)


def named(*globs: str) -> tuple[AnyCase, ...]:
    """List the cases whose names match one of the globs; all cases if there are none."""
    return tuple(case for case in declared() if not globs or any(fnmatchcase(case.name, glob) for glob in globs))


def _formats() -> Iterator[AnyCase]:
    for agreement in AGREEMENTS:
        yield Same(f"{SUITE}/formats/{agreement.name}", agreement)


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
        yield KernelCase(_name("moe", kernel, f"experts={problem.experts}", problem), kernel, problem, BFLOAT16_BAR, reduced)
    problem, reduced = _REFERENCE_EXPERTS, "16 of 128 experts, a fifteenth of the intermediate size"
    yield KernelCase(_name("moe", reference, f"experts={problem.experts}", problem), reference, problem, FLOAT32_BAR, reduced)


def _linear() -> Iterator[AnyCase]:
    plain, single, onednn = cpu.LINEAR
    for tokens in (1, 8):
        head = Linear(tokens, 2880, 201088, bias=False)
        yield KernelCase(_name("linear", plain, "lm_head", head), plain, head, BFLOAT16_BAR)
    for tokens in TOKENS:
        qkv, output = Linear(tokens, 2880, 5120), Linear(tokens, 4096, 2880)
        yield KernelCase(_name("linear", onednn, "qkv", qkv), onednn, qkv, BFLOAT16_BAR)
        yield KernelCase(_name("linear", plain, "o", output), plain, output, BFLOAT16_BAR)
    router = Linear(33, 2880, 128)
    yield KernelCase(_name("linear", onednn, "router", router), onednn, router, BFLOAT16_BAR)
    for weight in ("mxfp4", "mxfp8", "nvfp4"):
        twin = Linear(33, 2880, 5120, weight)
        yield KernelCase(_name("linear", plain, f"qkv/{weight}-twin", twin), plain, twin, BFLOAT16_BAR)
        seen = Linear(8, 2880, 5120, weight, activations="nvfp4" if weight == "nvfp4" else "mxfp8")
        yield KernelCase(_name("linear", single, f"qkv/{weight}-{seen.activations}", seen), single, seen, FLOAT32_BAR)


DECODE = ((1, 1), (1, 2), (1, 127), (1, 128), (1, 129), (1, 130), (1, 1000), (1, 2049))
CHUNK = ((33, 1000), (1, 300), (128, 128))
PREFILL = ((1000, 1000),)
LONG = ((1, 16_385),)
"""Only with the window: with 16,385 keys the effect of a missing sink is smaller than rounding errors, and no bar would notice it."""
_BATCHES = {"prefill": PREFILL, "decode": DECODE, "chunk": CHUNK}


def _attention() -> Iterator[AnyCase]:
    sixteen, eight, reference = cpu.ATTENTION
    for batch, sequences in _BATCHES.items():
        for window in (WINDOW, None):
            # vLLM's CPU kernel rounds its cache to E4M3 towards zero, every GPU kernel to the nearest: see docs/validate.md.
            for kernel, cache in ((sixteen, "bfloat16"), (eight, "e4m3-cut")):
                problem = Attention(sequences, window, cache)
                yield KernelCase(_attention_name(kernel, batch, problem), kernel, problem, BFLOAT16_BAR)
            if batch != "prefill":
                problem = Attention(sequences, window)
                yield KernelCase(_attention_name(reference, batch, problem), reference, problem, FLOAT32_BAR)
    far = Attention(LONG, WINDOW)
    yield KernelCase(_attention_name(sixteen, "long", far), sixteen, far, BFLOAT16_BAR)


_FEW_EXPERTS = Experts(8, experts=8, hidden=192, intermediate=160)
"""Neither size is a multiple of the 128 columns that the kernels take at a time."""
_FEW_EXPERTS_REDUCED = "8 of 128 experts, a fifteenth of the hidden size, an eighteenth of the intermediate size"
_GLU = Glu(alpha=1.5, beta=1.5, limit=5.0)
"""Differs from gpt-oss in every number."""
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
"""The kernels read 128 logits at a time, and have a code path of their own for a single token."""
_DEEP = (Experts(2, experts=8, intermediate=64), Experts(16, experts=8, intermediate=64), Experts(2, experts=8, hidden=64))
"""gpt-oss's full size in one dimension: more columns than the kernels hold in registers, and than 99 KB of shared memory hold."""


def _emulated() -> Iterator[AnyCase]:
    """List cases of FlashInfer's kernels for few tokens, run on the CPU."""
    full, kernel = Experts(4, experts=4), emulated.wide(2944, 2944)
    yield BesideIdeal(_name("moe", kernel, "stored=2944/experts=4", full), kernel, full, IDEAL_BAR, "4 of 128 experts")
    for name, problem in _DECODE_EXPERTS.items():
        yield BesideIdeal(
            _name("moe", emulated.EXPERTS, name, problem), emulated.EXPERTS, problem, IDEAL_BAR, _FEW_EXPERTS_REDUCED
        )
    for tokens in _DECODE_TOKENS:
        for stored, kernel in (("192x160", emulated.EXPERTS), ("256x288", emulated.wide(256, 288))):
            few = replace(_FEW_EXPERTS, tokens=tokens)
            yield BesideIdeal(_name("moe", kernel, f"stored={stored}", few), kernel, few, IDEAL_BAR, _FEW_EXPERTS_REDUCED)
    for name, problem in _CHOOSING.items():
        yield BesideIdeal(
            _name("moe", emulated.CHOOSING, name, problem), emulated.CHOOSING, problem, IDEAL_BAR, _FEW_EXPERTS_REDUCED
        )
    for deep in _DEEP:
        size = f"hidden={deep.hidden}"
        reduced = "8 of 128 experts, one of the sizes 64"
        yield BesideIdeal(_name("moe", emulated.EXPERTS, size, deep), emulated.EXPERTS, deep, IDEAL_BAR, reduced)
    for name, layer, reduced in _decode_layers():
        yield BesideIdeal(_name("linear", emulated.DENSE, name, layer), emulated.DENSE, layer, IDEAL_BAR, reduced)
    yield from _ranges(emulated.EXPERTS, emulated.CHOOSING, emulated.DENSE, emulated.MANY_ROWS)
    for agreement in emulated.agreements():
        yield Same(f"{SUITE}/quantizer/{agreement.name}", agreement)


def _ranges(
    by_ids: Kernel[Experts], by_logits: Kernel[Experts], few_rows: Kernel[Linear], many_rows: Kernel[Linear]
) -> Iterator[BesideIdeal]:
    """List the cases at the ends of what these kernels promise."""
    reduced = range_cases.REDUCED
    for case in range_cases.experts():
        mixture = by_logits if case.chooses else by_ids
        name = _name("moe", mixture, f"range/{case.name}", case.problem)
        yield BesideIdeal(name, mixture, case.problem, IDEAL_BAR, reduced)
    for layer in range_cases.dense():
        dense = many_rows if layer.many_rows else few_rows
        name = _name("linear", dense, f"range/{layer.name}", layer.problem)
        yield BesideIdeal(name, dense, layer.problem, IDEAL_BAR, reduced)


_MANY_ROWS = Linear(2, 160, 33810, "mxfp4", bias=False)
"""With many blocks per multiprocessor (of 48 or 132) the kernel takes smaller ones. Neither size is a multiple of the block's."""
_MANY_ROWS_REDUCED = "a sixth of lm_head's rows, an 18th of its columns"
_FEW_ROWS = Linear(2, 5152, 56, "mxfp4")
"""Fewer blocks than multiprocessors, for which the kernel has another block size; more columns than its registers hold at a time."""
_FEW_ROWS_REDUCED = "56 rows and 5152 columns, neither a whole number of steps"


def _decode_layers() -> Iterator[tuple[str, Linear, str]]:
    yield "qkv", Linear(1, 2880, 5120, "mxfp4"), ""
    yield "o", Linear(8, 4096, 2880, "mxfp4"), ""
    yield "lm_head", _MANY_ROWS, _MANY_ROWS_REDUCED
    for tokens in _DECODE_TOKENS:
        yield "odd", replace(_FEW_ROWS, tokens=tokens), _FEW_ROWS_REDUCED


def _gpu() -> Iterator[AnyCase]:
    for mixture in cuda.EXPERTS:
        for problem, reduced in _EXPERTS:
            experts = replace(problem, activations=cuda.activations(mixture))
            bar = MXFP8_BAR if experts.activations == "mxfp8" else BFLOAT16_BAR
            yield KernelCase(_name("moe", mixture, f"experts={experts.experts}", experts), mixture, experts, bar, reduced)
    for dense in cuda.LINEAR:
        for tokens in TOKENS:
            for name, inputs, outputs in (("qkv", 2880, 5120), ("o", 4096, 2880)):
                layer = Linear(tokens, inputs, outputs, cuda.weight(dense))
                yield KernelCase(_name("linear", dense, name, layer), dense, layer, BFLOAT16_BAR)
    for attends in cuda.ATTENTION:
        for batch, sequences in _BATCHES.items():
            for window in (WINDOW, None):
                for cache in ("bfloat16", "e4m3"):
                    attention = Attention(sequences, window, cache, page=16)
                    yield KernelCase(_attention_name(attends, batch, attention), attends, attention, BFLOAT16_BAR)


_DECODED = (
    (Experts(1), ""),
    *((Experts(tokens, experts=8), "8 of 128 experts") for tokens in (1, 2, 4, 8, 16)),
    (Experts(16, experts=8, intermediate=736), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(16, experts=8, elsewhere=3), "8 of 128 experts, of which five are here"),
    (Experts(8, experts=8, intermediate=736, glu=_GLU), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(16, experts=8, hidden=8192, intermediate=64), "8 of 128 experts, a 45th of the intermediate size"),
)
"""Sizes that are not multiples of 64; the largest number of tokens; a part of the experts, selected by a map; another activation; and
more columns than a block's shared memory holds at a time, which is 227 KB or less."""


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
            for rows, reduced in ((_FEW_ROWS, _FEW_ROWS_REDUCED), (_MANY_ROWS, _MANY_ROWS_REDUCED)):
                layer = replace(rows, tokens=tokens)
                name = _name("linear", dense, f"rows={layer.outputs}", layer)
                yield BesideIdeal(name, dense, layer, IDEAL_BAR, reduced)
    plain, choosing, _ = decode.EXPERTS
    for case in _ranges(plain, choosing, *decode.LINEAR, *decode.LINEAR):
        # A GPU has other shapes of blocks, so it takes its kernel for many rows in its own cases; and no sparse memory.
        if "/many-rows/" not in case.name and not isinstance(case.problem, Many):
            yield case
    for agreement in decode.AGREEMENTS:
        yield Same(f"{SUITE}/formats/{agreement.name}", agreement)


_PREFILLED = (
    *((Experts(tokens, experts=8), "8 of 128 experts") for tokens in (1, 33, 128, 1000)),
    (Experts(1000, intermediate=192), "a fifteenth of the intermediate size"),
    (Experts(1000, experts=8, intermediate=736), "8 of 128 experts, a quarter of the intermediate size"),
    (Experts(128, experts=8, elsewhere=3), "8 of 128 experts, of which five are here"),
    (Experts(128, experts=8, intermediate=736, glu=_GLU), "8 of 128 experts, a quarter of the intermediate size"),
)
"""Few and many tokens of an expert; all experts; sizes that are not multiples of 64; a part of the experts; another activation."""


def _prefill() -> Iterator[AnyCase]:
    for mixture in prefill.EXPERTS:
        for experts, reduced in _PREFILLED:
            name = _name("moe", mixture, f"experts={experts.experts}", experts)
            name += f"/elsewhere={experts.elsewhere}" if experts.elsewhere else ""
            name += "/another-activation" if experts.glu != OSS else ""
            yield KernelCase(name, mixture, experts, BFLOAT16_BAR, reduced)


_FEW = (1, 0, 3, 8, 17, 32, 2, 130)
_MANY = (700, 0, 131, 1)


def _grouped() -> Iterator[AnyCase]:
    for kernel in sm120_on_sm90.GROUPED:
        for what, tokens, outputs in (("gate_up", _FEW, 5760), ("down", _FEW, 2880), ("down", _MANY, 2880)):
            problem = Grouped(tokens, 2880, outputs)
            name = f"{SUITE}/grouped/{kernel.name}/{what}/groups={len(tokens)}/m={problem.tokens}"
            yield KernelCase(name, kernel, problem, BFLOAT16_BAR, f"{len(tokens)} of 128 experts")


def _name(kind: str, kernel: Kernel[Any], what: str, problem: Experts | Linear) -> str:
    size = f"/intermediate={problem.intermediate}" if isinstance(problem, Experts) and problem.intermediate != 2880 else ""
    return f"{SUITE}/{kind}/{kernel.name}/{what}{size}/m={problem.tokens}"


def _attention_name(kernel: Kernel[Any], batch: str, problem: Attention) -> str:
    window = f"window={problem.window}" if problem.window else "full"
    return f"{SUITE}/attention/{kernel.name}/{batch}/{window}/kv={problem.cache}"
