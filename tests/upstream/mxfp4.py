# SPDX-License-Identifier: Apache-2.0
"""MXFP4 by the book (OCP MX specification), for proofs that have no GPU to quantize on: 32 values share a power of two."""

from __future__ import annotations

import torch

VALUES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
"""Of the eight positive E2M1 codes; the fourth bit is the sign."""


def codes_and_exponents(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E2M1 codes [rows, blocks, 32], nearest with ties to even, and exponents [rows, blocks]."""
    blocks = values.double().reshape(values.shape[0], -1, 32)
    mantissa, exponent = torch.frexp(blocks.abs().amax(-1))
    # frexp's mantissa is in [0.5, 1). The largest value of a block is rounded to two bits before its exponent counts.
    exponent = exponent - 3 + (mantissa >= 0.875)
    exponent = torch.where(mantissa == 0, -127, exponent).clamp(-127, 127)
    scaled = blocks * torch.exp2(-exponent.double())[..., None]
    odd = torch.tensor([0, 1] * 4, dtype=torch.float64) * 1e-12
    codes = ((scaled.abs()[..., None] - VALUES).abs() + odd).argmin(-1)
    return codes + 8 * torch.signbit(blocks), exponent


def quantize(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What vLLM's mxfp4_quantize returns: two codes a byte, the lower nibble first, and E8M0 scales [rows, blocks]."""
    assert values.dtype in (torch.bfloat16, torch.float16)  # the kernel takes no others
    codes, exponent = codes_and_exponents(values)
    low, high = codes.reshape(values.shape[0], -1, 2).to(torch.uint8).unbind(-1)
    return low | high << 4, (exponent + 127).to(torch.uint8)


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The values [rows, columns] that packed codes [rows, columns / 2] and scales [rows, columns / 32] stand for."""
    codes = torch.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1, 32).long()
    values = VALUES[codes % 8] * torch.where(codes < 8, 1.0, -1.0) * torch.exp2(scales.double() - 127)[..., None]
    return values.reshape(packed.shape[0], -1)


def rounded(values: torch.Tensor) -> torch.Tensor:
    """The values once they are MXFP4."""
    codes, exponent = codes_and_exponents(values)
    scaled = VALUES[codes % 8] * torch.where(codes < 8, 1.0, -1.0) * torch.exp2(exponent.double())[..., None]
    return scaled.reshape(values.shape)


def places_in_tiles(rows: int, columns: int) -> torch.Tensor:
    """Where the 128x4 layout keeps each of [rows, columns] scales, in a buffer padded to whole tiles of 128 x 4."""
    row, column = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
    tile = row // 128 * -(-columns // 4) + column // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


def to_tiles(scales: torch.Tensor) -> torch.Tensor:
    """Scales [rows, columns] in the 128x4 layout, padded with zeros."""
    rows, columns = scales.shape
    buffer = torch.zeros(-(-rows // 128) * 128, -(-columns // 4) * 4, dtype=scales.dtype)
    buffer.view(-1)[places_in_tiles(rows, columns).view(-1)] = scales.reshape(-1)
    return buffer


def from_tiles(buffer: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Scales [rows, columns] from a contiguous buffer in the 128x4 layout."""
    return buffer.reshape(-1)[places_in_tiles(rows, columns)]
