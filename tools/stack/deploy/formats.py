# SPDX-License-Identifier: Apache-2.0
"""Formats of weights and KV caches by vLLM's names of them, and the bytes that they take."""

import math
from dataclasses import dataclass

from stack.base.errors import StackError


@dataclass(frozen=True, slots=True)
class Format:
    """A storage format: bits per value, and a scale of `scale` bytes for each group of `rows` x `columns` values.

    If `rows` or `columns` is 0, a group spans all of them.
    """

    name: str
    bits: int
    scale: int = 0
    rows: int = 0
    columns: int = 0

    def size(self, rows: int, columns: int) -> int:
        """Count the bytes of a matrix of `rows` outputs and `columns` inputs, with its scales."""
        groups = math.ceil(rows / (self.rows or rows)) * math.ceil(columns / (self.columns or columns))
        return math.ceil(rows * columns * self.bits / 8) + groups * self.scale


BF16 = Format("BF16", 16)
MXFP4 = Format("MXFP4", 4, scale=1, rows=1, columns=32)
NVFP4 = Format("NVFP4", 4, scale=1, rows=1, columns=16)
"""Its global scale, four bytes for a whole matrix, is not counted."""
_FP8_ROW = Format("FP8", 8, scale=4, rows=1)
_FP8_BLOCK = Format("FP8, blocks", 8, scale=4, rows=128, columns=128)
_FP8_TENSOR = Format("FP8, tensor", 8, scale=4)

TYPES = {
    "auto": BF16,
    "bfloat16": BF16,
    "half": Format("FP16", 16),
    "float16": Format("FP16", 16),
    "float": Format("FP32", 32),
    "float32": Format("FP32", 32),
}
"""Formats of a checkpoint's own dense layers by `--dtype`; gpt-oss is published in BF16."""

QUANTIZED = {
    "mxfp4": MXFP4,
    "mxfp8": Format("MXFP8", 8, scale=1, rows=1, columns=32),
    "fp8": _FP8_ROW,
    "fp8_per_channel": _FP8_ROW,
    "fp8_per_channel_static": _FP8_ROW,
    "fp8_per_block": _FP8_BLOCK,
    "fp8_per_block_static": _FP8_BLOCK,
    "fp8_per_tensor": _FP8_TENSOR,
    "fp8_per_tensor_static": _FP8_TENSOR,
}
"""Formats by the names of `--quantization-config`; `fp8` and `none` are added by this stack (series mxfp4-dense)."""

CACHED = {name: Format("FP8", 8) for name in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")}
"""Formats by `--kv-cache-dtype`; a cache's single scale is not counted."""


def blocks(rows: int, columns: int) -> Format:
    """Make the format of FP8 with a scale for each block of `rows` x `columns` values."""
    return Format("FP8, blocks", 8, scale=4, rows=rows, columns=columns)


def weight(name: str, dense: Format) -> Format:
    """Find the format that `--quantization-config` names; `none` is the model's own, `dense`.

    Raises:
        StackError: no linear layer can be quantized to it, or its size is not known here.

    """
    if name == "none":
        return dense
    if name not in QUANTIZED:
        raise StackError(f"{name!r:.100} is not a format that is counted", f"known are {', '.join((*QUANTIZED, 'none'))}")
    return QUANTIZED[name]


def cache(name: str, dense: Format) -> Format:
    """Find the format that `--kv-cache-dtype` names; `auto` is the model's own, `dense`.

    Raises:
        StackError: its size is not known here.

    """
    known = {**TYPES, **CACHED, "auto": dense}
    if name not in known:
        raise StackError(f"--kv-cache-dtype {name!r:.100} is not counted", f"known are {', '.join(known)}")
    return known[name]
