# SPDX-License-Identifier: Apache-2.0
"""MXFP4 as gpt-oss's checkpoints hold it: e2m1 values, two a byte, the first in the low half; one e8m0 scale for 32 of them."""

import torch

BLOCK = 32
"""Values that share a scale."""
VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0])
"""What the sixteen codes mean."""
BIAS = 127
"""Of the exponent in a scale."""


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes `[…, columns]` (0 to 15) as bytes `[…, columns / 32, 16]`."""
    pairs = codes.to(torch.uint8).unflatten(-1, (-1, BLOCK // 2, 2))
    return pairs[..., 0] | pairs[..., 1] << 4


def unpack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """What bytes `[…, columns / 32, 16]` and scales `[…, columns / 32]` mean, in float32 `[…, columns]`."""
    codes = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2)
    return (VALUES[codes.long()] * torch.exp2(scales.float() - BIAS)[..., None]).flatten(-2)
