# SPDX-License-Identifier: Apache-2.0
"""MXFP4 as in gpt-oss's checkpoints: e2m1 values, two per byte, the first in the low half; one e8m0 scale per 32 values."""

import torch

BLOCK = 32
"""Number of values that share a scale."""
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""Values of the sixteen codes."""
BIAS = 127
"""Bias of a scale's exponent."""


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Pack codes `[…, columns]` (0 to 15) into bytes `[…, columns / 32, 16]`."""
    pairs = codes.to(torch.uint8).unflatten(-1, (-1, BLOCK // 2, 2))
    return pairs[..., 0] | pairs[..., 1] << 4


def unpack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Decode bytes `[…, columns / 32, 16]` with scales `[…, columns / 32]` to float32 `[…, columns]`."""
    codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
    return (VALUES[codes.long()] * torch.exp2(scales.float() - BIAS)[..., None]).flatten(-2)
