# SPDX-License-Identifier: Apache-2.0
"""How servers are started on a GPU machine, and what their logs have to say."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Recipe:
    """Arguments of `vllm serve`; parts of lines that its log must hold. `without`: patches that are left out, by their paths.

    `profiled`: what a token takes is looked at with the profiler.
    """

    name: str
    arguments: tuple[str, ...]
    log: tuple[str, ...]
    without: tuple[str, ...] = ()
    profiled: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two recipes that differ in one thing: how many times as fast is `one` as `other`, and how much it has to be, by kind."""

    name: str
    one: str
    other: str
    least: Mapping[str, float]


FORMAT = "stack-dummy"
"""For vLLM's --load-format: weights that are made as they are loaded (`weights.py`)."""

PADDING = "mxfp4-moe/vllm/round-marlin-experts-up-to-its-tiles-only.patch"
"""Without it Marlin's experts have their hidden size rounded up from 2880 to 3072."""
ROUTER = "mxfp4-moe/vllm/run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch"
"""Without it the router is cuBLAS', whatever runs the experts."""

_MARLIN = ("--moe-backend", "marlin", "--attention-backend", "TRITON_ATTN")
_FOUR_BITS = ("--quantization-config", '{"linear":"mxfp4","lm_head":"mxfp4"}', "--linear-backend", "marlin")
_QKV_O = ("--quantization-config", '{"linear":"mxfp4"}', "--linear-backend", "marlin")
_DECODE = (
    *("--moe-backend", "flashinfer_decode", "--attention-backend", "TRITON_ATTN"),
    *("--quantization-config", '{"linear":"mxfp4","lm_head":"mxfp4"}', "--linear-backend", "flashinfer_gemv"),
)
_MARLIN_LOG = ("Using 'MARLIN' Mxfp4 MoE backend", "TRITON_ATTN backend", "Using MarlinMxFp4LinearKernel for MXFP4 GEMM")

RECIPES = (
    # What vLLM chooses by itself on SM90.
    Recipe("default", (), ("Using 'TRITON' Mxfp4 MoE backend", "Using FLASH_ATTN attention backend")),
    # What SM121 has by default (Marlin's experts, Triton's attention), all dense layers in 4 bits, with and without padding.
    Recipe("marlin", (*_MARLIN, *_FOUR_BITS), _MARLIN_LOG),
    Recipe("marlin-padded", (*_MARLIN, *_FOUR_BITS), _MARLIN_LOG, without=(PADDING,)),
    # What upstream has for SM121: dense layers in BF16; then qkv and o in 4 bits; and the stack's kernels for few tokens, which FlashInfer
    # compiles when they are first used.
    Recipe("upstream", _MARLIN, _MARLIN_LOG[:2], without=(PADDING, ROUTER), profiled=True),
    Recipe("upstream-qkv-o", (*_MARLIN, *_QKV_O), _MARLIN_LOG, without=(PADDING, ROUTER), profiled=True),
    Recipe(
        "decode",
        _DECODE,
        (
            "Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of all batches.",
            "Using 'flashinfer_mxfp4_moe_decode' for the choice of MXFP4 experts of up to 16 tokens.",
            "TRITON_ATTN backend",
            "Using FlashInferGemvMxFp4LinearKernel for MXFP4 GEMM",
            "Using 'flashinfer_tinygemm_bf16' for the MoE router of up to 16 tokens.",
        ),
        profiled=True,
    ),
)
COMPARISONS = (
    # What the series promises: decoding is faster without the padding. Prefill has fewer tiles to choose from then; it may not
    # lose more than a twentieth.
    Comparison("padding", "marlin", "marlin-padded", MappingProxyType({"decode": 1.0, "prefill": 0.95})),
    # The kernels for few tokens; what they do in prefill, for which they are not meant, is measured and not held against them.
    Comparison("decode-kernels", "decode", "upstream", MappingProxyType({"decode": 1.5})),
)


def served(patches: Set[str]) -> Iterator[Recipe]:
    """The recipes for a stack of these patches, but for those that would serve what another one serves: all that they leave out has landed."""
    for recipe in RECIPES:
        twins = [other for other in RECIPES if other.arguments == recipe.arguments and not other.without]
        if not recipe.without or not patches.isdisjoint(recipe.without) or not twins:
            yield recipe


def compared(patches: Set[str]) -> Iterator[Comparison]:
    """The comparisons for a stack of these patches: those of two recipes that are served."""
    names = {recipe.name for recipe in served(patches)}
    return (comparison for comparison in COMPARISONS if {comparison.one, comparison.other} <= names)
