# SPDX-License-Identifier: Apache-2.0
"""Matrices in block formats: MXFP4 and MXFP8 (a power of two for 32 values of a row), NVFP4 (an E4M3 for 16, one float32 for all).

How a block's power of two is chosen is no part of the format, and implementations differ: see `Rounding`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.formats import (
    E2M1,
    E4M3,
    E8M0_BIAS,
    E8M0_NAN,
    Array,
    Bytes,
    Minifloat,
    Single,
    decode_e8m0,
    encode,
    pack,
    unpack,
    values,
)


class Rounding(StrEnum):
    """How the power of two of a block follows from its largest magnitude."""

    FLOOR = "floor"
    """The OCP specification's: 2^(floor(log2 max) - emax). The largest values may saturate."""
    EVEN = "even"
    """The same after rounding the maximum to the element's mantissa, halves away from zero (compressed-tensors, Quark)."""
    UP = "up"
    """The least power with which nothing saturates (NVIDIA's `cvt.rp`: what FlashInfer and cuBLAS do to activations)."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """An element's format and how many of them, along a row, share a scale; `scale` is None for E8M0."""

    name: str
    element: Minifloat
    size: int
    scale: Minifloat | None = None

    @property
    def packed(self) -> bool:
        """Whether two elements share a byte."""
        return self.element.sign < 0x10


MXFP4 = BlockFormat("mxfp4", E2M1, 32)
MXFP8 = BlockFormat("mxfp8", E4M3, 32)
NVFP4 = BlockFormat("nvfp4", E2M1, 16, E4M3)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A matrix: `codes` uint8 [rows, columns], half as many columns where packed; `scales` uint8 [rows, columns / size].

    `tensor_scale`: what all values are multiplied by; 1 but for NVFP4.
    """

    form: BlockFormat
    codes: Bytes
    scales: Bytes
    tensor_scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of values."""
        rows, blocks = self.scales.shape
        return rows, blocks * self.form.size

    def values(self) -> Array:
        """The values, exactly: [rows, columns]."""
        elements = self._elements().astype(np.float64)
        elements *= (self.factors() * self.tensor_scale)[..., None]
        return elements.reshape(self.shape)

    def single(self) -> Single:
        """The values in float32, exact as long as they and the scales are in its range; half as dear."""
        elements = self._elements()
        elements *= (self.factors() * self.tensor_scale).astype(np.float32)[..., None]
        return elements.reshape(self.shape)

    def factors(self) -> Array:
        """The blocks' scales as numbers, without `tensor_scale`: [rows, columns / size]."""
        scale = self.form.scale
        return decode_e8m0(self.scales) if scale is None else values(scale)[self.scales]

    def _elements(self) -> Single:
        """The elements alone: [rows, columns / size, size]."""
        return _table(self.form)[self.codes].view(np.float32).reshape(*self.scales.shape, self.form.size)

    def nibbles_swapped(self) -> "Blocks":
        """Each byte's halves the other way round."""
        return replace(self, codes=nibbles_swapped(self.codes))

    def scales_shifted(self) -> "Blocks":
        """Every block with the scale of the one before it: what a wrong swizzle does."""
        return replace(self, scales=np.roll(self.scales, 1, axis=1))

    def scales_averaged(self) -> "Blocks":
        """Every row with one scale, the mean of its exponents: what a kernel does that reads a scale a row."""
        mean = np.rint(self.scales.astype(np.float64).mean(axis=1, keepdims=True)).astype(np.uint8)
        return replace(self, scales=np.broadcast_to(mean, self.scales.shape))


def nibbles_swapped(packed: Bytes) -> Bytes:
    """The halves of each byte the other way round."""
    return (packed >> np.uint8(4)) | (packed << np.uint8(4))


@functools.cache
def _table(form: BlockFormat) -> npt.NDArray[Any]:
    """What each byte of codes stands for: a float32, or two of them as one number of eight bytes (one look-up, not two)."""
    known = values(form.element).astype(np.float32)
    return known[unpack(np.arange(256, dtype=np.uint8)[:, None])].view(np.uint64)[:, 0] if form.packed else known


def quantize(
    form: BlockFormat, numbers: npt.ArrayLike, rounding: Rounding = Rounding.FLOOR, tensor_scale: float | None = None
) -> Blocks:
    """A matrix [rows, columns] in a block format: scales by `rounding`, elements to the nearest.

    A block with a NaN is NaN throughout: in MX by its scale, in NVFP4 by the NaN of E4M3. A block of zeros gets the smallest scale
    of MX, 2^-127. An infinity counts as more than any number: the largest scale. `tensor_scale` is NVFP4's; by default the
    largest magnitude takes the largest scale and the largest element.

    Raises:
        ValueError: the columns are no multiple of the block.

    """
    given = np.asarray(numbers, np.float64)
    rows, columns = given.shape
    if columns % form.size:
        raise ValueError(f"{columns} columns are no multiple of {form.size}")
    blocked = given.reshape(rows, columns // form.size, form.size)
    largest = np.abs(blocked).max(axis=2)  # NaN where a NaN is in the block
    if form.scale is None:
        overall = 1.0
        scales = _powers(form.element, largest, rounding)
        factor = decode_e8m0(scales)
    else:
        overall = _overall(form, largest) if tensor_scale is None else float(np.float32(tensor_scale))
        scales = encode(form.scale, largest / form.element.largest / overall)
        factor = values(form.scale)[scales] * overall
    usable = np.isfinite(factor) & (factor > 0)
    scaled = np.where(usable[..., None], blocked, 0.0) / np.where(usable, factor, 1.0)[..., None]
    codes = encode(form.element, scaled).reshape(rows, columns)
    return Blocks(form, pack(codes) if form.packed else codes, scales, overall)


def _overall(form: BlockFormat, largest: Array) -> float:
    assert form.scale is not None
    top = float(np.nanmax(largest, initial=0.0))
    return float(np.float32(top / form.element.largest / form.scale.largest)) or 1.0


def _powers(element: Minifloat, largest: Array, rounding: Rounding) -> Bytes:
    """E8M0 codes for blocks with these largest magnitudes."""
    finite = np.isfinite(largest) & (largest > 0)
    size = np.where(finite, largest, 1.0)
    if rounding is Rounding.UP:
        significand, exponent = np.frexp(size / element.largest)
        power = exponent - (significand == 0.5)  # exact powers of two stay
    else:
        if rounding is Rounding.EVEN:
            size = size + np.ldexp(1.0, np.frexp(size)[1] - 2 - element.mantissa_bits)
        power = np.frexp(size)[1] - np.frexp(element.largest)[1]
    codes = np.clip(power + E8M0_BIAS, 0, E8M0_NAN - 1)
    codes = np.where(np.isinf(largest), E8M0_NAN - 1, np.where(largest == 0, 0, codes))
    return np.where(np.isnan(largest), E8M0_NAN, codes).astype(np.uint8)


def drawn(form: BlockFormat, shape: tuple[int, int], draw: np.random.Generator, exponents: tuple[int, int]) -> Blocks:
    """A random matrix whose every code occurs, its scales 2^low .. 2^high: cheaper than to quantise, and no value is out of range."""
    rows, columns = shape
    width = columns // 2 if form.packed else columns
    codes = np.frombuffer(draw.bytes(rows * width), np.uint8).reshape(rows, width)
    if form.element.nan is not None:
        codes = np.where(codes & (form.element.sign - 1) == form.element.nan, codes & form.element.sign, codes)
    low, high = exponents
    powers = draw.integers(low, high, (rows, columns // form.size), endpoint=True)
    scale: Callable[[Any], Bytes] = functools.partial(encode, form.scale) if form.scale else _e8m0
    return Blocks(form, codes, scale(np.ldexp(1.0, powers)))


def _e8m0(powers: Array) -> Bytes:
    return (np.frexp(powers)[1] - 1 + E8M0_BIAS).astype(np.uint8)
