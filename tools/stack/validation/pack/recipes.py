# SPDX-License-Identifier: Apache-2.0
"""Recipes of the servers on a GPU machine: their arguments, and the lines that their logs must have."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Recipe:
    """Arguments of `vllm serve`, and texts that its log must contain. `without`: paths of patches that are left out.

    If `profiled`, the work for a token is measured with the profiler. `gpus`: the machines on which it is served.
    """

    name: str
    arguments: tuple[str, ...]
    log: tuple[str, ...]
    without: tuple[str, ...] = ()
    profiled: bool = False
    gpus: tuple[str, ...] = ("sm90",)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two recipes that differ in one thing: by kind, the least ratio of `one`'s speed to `other`'s, on the machines of `gpus`."""

    name: str
    one: str
    other: str
    least: Mapping[str, float]
    gpus: tuple[str, ...] = ("sm90",)


FORMAT = "stack-dummy"
"""Value of vLLM's --load-format for weights that are generated while loading (`weights.py`)."""

PADDING = "mxfp4-moe/vllm/round-marlin-experts-up-to-its-tiles-only.patch"
"""Without it the hidden size of Marlin's experts is rounded up from 2880 to 3072."""
ROUTER = "mxfp4-moe/vllm/run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch"
"""Without it the router runs on cuBLAS, whatever runs the experts."""

_MARLIN = ("--moe-backend", "marlin", "--attention-backend", "TRITON_ATTN")
_FOUR_BITS = ("--quantization-config", '{"linear":"mxfp4","lm_head":"mxfp4"}', "--linear-backend", "marlin")
_QKV_O = ("--quantization-config", '{"linear":"mxfp4"}', "--linear-backend", "marlin")
_EXPERTS = ("--moe-backend", "flashinfer_decode")
_GEMV = ("--quantization-config", '{"linear":"mxfp4","lm_head":"mxfp4"}', "--linear-backend", "flashinfer_gemv")
_DECODE = (*_EXPERTS, "--attention-backend", "TRITON_ATTN", *_GEMV)
_SPARK = (
    "--quantization-config",
    '{"linear":"mxfp4","lm_head":"mxfp4"}',
    "--attention-backend",
    "FLASHINFER",
    "--kv-cache-dtype",
    "fp8",
)
"""The arguments that the recipes gpt-oss-120b-spark and -decode share."""
_BOTH = ("sm90", "sm121")
_MARLIN_LOG = ("Using 'MARLIN' Mxfp4 MoE backend", "TRITON_ATTN backend", "Using MarlinMxFp4LinearKernel for MXFP4 GEMM")

RECIPES = (
    # vLLM's own choice on SM90.
    Recipe("default", (), ("Using 'TRITON' Mxfp4 MoE backend", "Using FLASH_ATTN attention backend")),
    # The default of SM121 (Marlin's experts, Triton's attention) with all dense layers in 4 bits, with and without padding.
    Recipe("marlin", (*_MARLIN, *_FOUR_BITS), _MARLIN_LOG, gpus=_BOTH),
    Recipe("marlin-padded", (*_MARLIN, *_FOUR_BITS), _MARLIN_LOG, without=(PADDING,)),
    # Upstream's choice for SM121: dense layers in BF16, then qkv and o in 4 bits. The last recipe uses the stack's kernels for few tokens,
    # which FlashInfer compiles on first use.
    Recipe("upstream", _MARLIN, _MARLIN_LOG[:2], without=(PADDING, ROUTER), profiled=True, gpus=_BOTH),
    Recipe("upstream-qkv-o", (*_MARLIN, *_QKV_O), _MARLIN_LOG, without=(PADDING, ROUTER), profiled=True),
    Recipe(
        "decode",
        _DECODE,
        (
            # Of all batches, or on SM90 of fewer than 33 tokens beside FlashInfer's prefill kernel.
            "Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of ",
            "Using 'flashinfer_mxfp4_moe_decode' for the choice of MXFP4 experts of up to 16 tokens.",
            "TRITON_ATTN backend",
            "Using FlashInferGemvMxFp4LinearKernel for MXFP4 GEMM",
            "Using 'flashinfer_tinygemm_bf16' for the MoE router of up to 16 tokens.",
        ),
        profiled=True,
        gpus=_BOTH,
    ),
    # The stack's kernels for experts of few and of many tokens with vLLM's own attention.
    Recipe(
        "fast",
        (*_EXPERTS, *_GEMV),
        (
            "Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of fewer than 33 tokens, 'flashinfer_mxfp4_moe_prefill' for more.",
            "Using FLASH_ATTN attention backend",
            "Using FlashInferGemvMxFp4LinearKernel for MXFP4 GEMM",
        ),
    ),
    # The recipe gpt-oss-120b-spark, and the same with the kernels for few tokens: what a Spark's owner chooses between. FlashInfer compiles
    # the attention of both, and CUTLASS's experts of the second.
    Recipe(
        "spark",
        ("--moe-backend", "marlin", "--linear-backend", "marlin", *_SPARK),
        ("Using 'MARLIN' Mxfp4 MoE backend", "FLASHINFER backend", "Using MarlinMxFp4LinearKernel for MXFP4 GEMM"),
        profiled=True,
        gpus=("sm121",),
    ),
    Recipe(
        "spark-decode",
        ("--moe-backend", "flashinfer_cutlass", "--linear-backend", "flashinfer_gemv", *_SPARK),
        (
            "Using 'FLASHINFER_CUTLASS_MXFP4_MXFP8' Mxfp4 MoE backend",
            "Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of up to 16 tokens",
            "FLASHINFER backend",
            "Using FlashInferGemvMxFp4LinearKernel for MXFP4 GEMM",
        ),
        profiled=True,
        gpus=("sm121",),
    ),
)
COMPARISONS = (
    # The series promises that decoding is faster without the padding. Prefill then has fewer tiles to choose from, and may lose up to
    # 5 %.
    Comparison("padding", "marlin", "marlin-padded", MappingProxyType({"decode": 1.0, "prefill": 0.95})),
    # The kernels for few tokens. Their speed in prefill, for which they are not meant, is measured but has no bar.
    Comparison("decode-kernels", "decode", "upstream", MappingProxyType({"decode": 1.5})),
    # Prompts and answers of one server, with one copy of the weights, beside what vLLM chooses.
    Comparison("all-kernels", "fast", "default", MappingProxyType({"decode": 1.6, "prefill": 0.95})),
    # A Spark is bound by its memory, and both read the same weights: the decode kernels must not be slower.
    Comparison("spark-kernels", "spark-decode", "spark", MappingProxyType({"decode": 1.0}), gpus=("sm121",)),
    Comparison("marlin-kernels", "decode", "marlin", MappingProxyType({"decode": 1.0}), gpus=("sm121",)),
)


def of(gpu: str) -> tuple[Recipe, ...]:
    """Return the recipes that are served on a GPU."""
    return tuple(recipe for recipe in RECIPES if gpu in recipe.gpus)


def served(patches: Set[str], gpu: str) -> Iterator[Recipe]:
    """Yield the recipes for a stack with these patches; skip one whose left-out patches have all landed if another serves the same."""
    for recipe in of(gpu):
        twins = [other for other in of(gpu) if other.arguments == recipe.arguments and not other.without]
        if not recipe.without or not patches.isdisjoint(recipe.without) or not twins:
            yield recipe


def compared(patches: Set[str], gpu: str) -> Iterator[Comparison]:
    """Yield the comparisons of two recipes that are both served for a stack with these patches."""
    names = {recipe.name for recipe in served(patches, gpu)}
    return (each for each in COMPARISONS if gpu in each.gpus and {each.one, each.other} <= names)
