# SPDX-License-Identifier: Apache-2.0
"""NVFP4 by the book, for proofs that have no GPU: 16 values share an E4M3 scale, and a tensor has a scale in FP32."""

from __future__ import annotations

import torch

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
"""Of the eight positive E2M1 codes; the fourth bit is the sign."""
GROUP = 16
FP4_MAX, E4M3_MAX = 6.0, 448.0


def scales(weights: torch.Tensor, shared: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Block scales in E4M3 and one global scale for each expert of [experts, rows, columns]; `shared` sets the global ones."""
    blocks = weights.unflatten(-1, (-1, GROUP)).abs().amax(-1) / FP4_MAX
    if shared is None:
        shared = blocks.flatten(1).amax(1) / E4M3_MAX
    return (blocks / shared.view(-1, 1, 1)).to(torch.float8_e4m3fn), shared


def quantize(weights: torch.Tensor, shared: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two codes a byte, the lower nibble first, with block scales and global scales, which `shared` can set."""
    block, shared = scales(weights, shared)
    scaled = weights.unflatten(-1, (-1, GROUP)) / (block.float() * shared.view(-1, 1, 1))[..., None]
    codes = (scaled.abs()[..., None] - VALUES).abs().argmin(-1) + 8 * torch.signbit(scaled)
    low, high = codes.flatten(-2).unflatten(-1, (-1, 2)).to(torch.uint8).unbind(-1)
    return low | high << 4, block, shared


def dequantize(packed: torch.Tensor, block: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
    """The values of packed codes; the global scales are one for each expert."""
    codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()
    values = VALUES[codes & 7] * torch.where(codes > 7, -1.0, 1.0)
    return values * block.float().repeat_interleave(GROUP, -1) * shared.view(-1, 1, 1)


def from_tiles(scale: torch.Tensor) -> torch.Tensor:
    """Undo swizzle_blockscale: rows and columns in their order, with the padding."""
    experts, rows, columns = scale.shape
    tiles = scale.reshape(experts, rows // 128, columns // 4, 32, 4, 4)
    return tiles.permute(0, 1, 4, 3, 2, 5).reshape(experts, rows, columns)


def experts(w13: torch.Tensor, w2: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Every expert's answer to every token, with SiLU; w13 is [gate, up]."""
    gate, up = (hidden @ w13.mT).chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up) @ w2.mT


def error(answer: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error, over all."""
    return float((answer.double() - wanted.double()).norm() / wanted.double().norm())
