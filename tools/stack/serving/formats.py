# SPDX-License-Identifier: Apache-2.0
"""Formats of weights and of KV caches, by the names that vLLM's arguments give them, and the bytes that they take."""

import math
from dataclasses import dataclass

from stack.base.errors import StackError


@dataclass(frozen=True, slots=True)
class Format:
    """How a weight is stored: bits a value, and a scale of so many bytes for each group of `rows` x `columns` values.

    A group of 0 rows or columns spans all of them.
    """

    name: str
    bits: int
    scale: int = 0
    rows: int = 0
    columns: int = 0

    def size(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of `rows` outputs and `columns` inputs, with its scales."""
        groups = math.ceil(rows / (self.rows or rows)) * math.ceil(columns / (self.columns or columns))
        return math.ceil(rows * columns * self.bits / 8) + groups * self.scale


BF16 = Format("BF16", 16)
MXFP4 = Format("MXFP4", 4, scale=1, rows=1, columns=32)
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
"""By `--dtype`: what a checkpoint's own dense layers become; gpt-oss is published in BF16."""

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
"""By the names of `--quantization-config`; `fp8` and `none` are this stack's (series mxfp4-dense)."""

CACHED = {name: Format("FP8", 8) for name in ("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")}
"""By `--kv-cache-dtype`: one scale for a whole cache is nothing beside it."""


def weight(name: str, dense: Format) -> Format:
    """The format that `--quantization-config` names; `none` is the model's own, `dense`.

    Raises:
        StackError: no linear layer is quantized to it, or its bytes are not known here.

    """
    if name == "none":
        return dense
    if name not in QUANTIZED:
        raise StackError(f"{name!r:.100} is no format that is counted", f"known are {', '.join((*QUANTIZED, 'none'))}")
    return QUANTIZED[name]


def cache(name: str, dense: Format) -> Format:
    """The format that `--kv-cache-dtype` names; `auto` is the model's own, `dense`.

    Raises:
        StackError: its bytes are not known here.

    """
    known = {**TYPES, **CACHED, "auto": dense}
    if name not in known:
        raise StackError(f"--kv-cache-dtype {name!r:.100} is not counted", f"known are {', '.join(known)}")
    return known[name]
