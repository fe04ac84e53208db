# SPDX-License-Identifier: Apache-2.0
"""Matrices in block formats: MXFP4 and MXFP8 (a power of two per 32 values of a row), NVFP4 (an E4M3 scale per 16, one float32 for all).

The formats do not define how a block's power of two is chosen, and implementations differ: see `Rounding`.
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
    """Rule that derives a block's power of two from its largest magnitude."""

    FLOOR = "floor"
    """Rule of the OCP specification: 2^(floor(log2 max) - emax). The largest values may saturate."""
    EVEN = "even"
    """Like FLOOR, after rounding the maximum to the element's mantissa, ties away from zero (compressed-tensors, Quark)."""
    UP = "up"
    """The smallest power that saturates nothing (NVIDIA's `cvt.rp`; FlashInfer and cuBLAS do this to activations)."""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """The format of an element, and how many elements of a row share a scale. `scale` is None for E8M0."""

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
    """A matrix: `codes` uint8 [rows, columns], half as many columns if packed; `scales` uint8 [rows, columns / size].

    `tensor_scale`: a factor of all values; only NVFP4 has one that is not 1.
    """

    form: BlockFormat
    codes: Bytes
    scales: Bytes
    tensor_scale: float = 1.0

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        rows, blocks = self.scales.shape
        return rows, blocks * self.form.size

    def values(self) -> Array:
        """Compute the exact values: [rows, columns]."""
        elements = self._elements().astype(np.float64)
        elements *= (self.factors() * self.tensor_scale)[..., None]
        return elements.reshape(self.shape)

    def single(self) -> Single:
        """Compute the values in float32 at half the cost; exact if values and scales are in its range."""
        elements = self._elements()
        elements *= (self.factors() * self.tensor_scale).astype(np.float32)[..., None]
        return elements.reshape(self.shape)

    def factors(self) -> Array:
        """Decode the blocks' scales, without `tensor_scale`: [rows, columns / size]."""
        scale = self.form.scale
        return decode_e8m0(self.scales) if scale is None else values(scale)[self.scales]

    def _elements(self) -> Single:
        """Decode the elements without scales: [rows, columns / size, size]."""
        return _table(self.form)[self.codes].view(np.float32).reshape(*self.scales.shape, self.form.size)

    def nibbles_swapped(self) -> "Blocks":
        """Swap the halves of each byte."""
        return replace(self, codes=nibbles_swapped(self.codes))

    def scales_shifted(self) -> "Blocks":
        """Give every block the scale of the block before it, as a wrong swizzle does."""
        return replace(self, scales=np.roll(self.scales, 1, axis=1))

    def scales_averaged(self) -> "Blocks":
        """Give every row one scale, the mean of its exponents, as a kernel does that reads one scale per row."""
        mean = np.rint(self.scales.astype(np.float64).mean(axis=1, keepdims=True)).astype(np.uint8)
        return replace(self, scales=np.broadcast_to(mean, self.scales.shape))


def nibbles_swapped(packed: Bytes) -> Bytes:
    """Swap the halves of each byte."""
    return (packed >> np.uint8(4)) | (packed << np.uint8(4))


@functools.cache
def _table(form: BlockFormat) -> npt.NDArray[Any]:
    """Map each byte of codes to a float32, or to two of them viewed as one uint64, so that one look-up decodes both."""
    known = values(form.element).astype(np.float32)
    return known[unpack(np.arange(256, dtype=np.uint8)[:, None])].view(np.uint64)[:, 0] if form.packed else known


def quantize(
    form: BlockFormat, numbers: npt.ArrayLike, rounding: Rounding = Rounding.FLOOR, tensor_scale: float | None = None
) -> Blocks:
    """Quantize a matrix [rows, columns]: scales by `rounding`, elements to the nearest.

    A block with a NaN becomes NaN as a whole: in MX by its scale, in NVFP4 by E4M3's NaN. A block of zeros gets MX's smallest scale,
    2^-127. A block with an infinity gets the largest scale. `tensor_scale` is NVFP4's; by default it maps the largest magnitude to
    the largest scale times the largest element.

    Raises:
        ValueError: the columns are not a multiple of the block size.

    """
    given = np.asarray(numbers, np.float64)
    rows, columns = given.shape
    if columns % form.size:
        raise ValueError(f"{columns} columns are not a multiple of {form.size}")
    blocked = given.reshape(rows, columns // form.size, form.size)
    largest = np.abs(blocked).max(axis=2)  # NaN if the block contains one
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
    """Compute the E8M0 codes of blocks with these largest magnitudes."""
    finite = np.isfinite(largest) & (largest > 0)
    size = np.where(finite, largest, 1.0)
    if rounding is Rounding.UP:
        significand, exponent = np.frexp(size / element.largest)
        power = exponent - (significand == 0.5)  # an exact power of two is not rounded up
    else:
        if rounding is Rounding.EVEN:
            size = size + np.ldexp(1.0, np.frexp(size)[1] - 2 - element.mantissa_bits)
        power = np.frexp(size)[1] - np.frexp(element.largest)[1]
    codes = np.clip(power + E8M0_BIAS, 0, E8M0_NAN - 1)
    codes = np.where(np.isinf(largest), E8M0_NAN - 1, np.where(largest == 0, 0, codes))
    return np.where(np.isnan(largest), E8M0_NAN, codes).astype(np.uint8)


def drawn(form: BlockFormat, shape: tuple[int, int], draw: np.random.Generator, exponents: tuple[int, int]) -> Blocks:
    """Draw a matrix with every code and with scales 2^low .. 2^high: cheaper than quantizing, and nothing is out of range."""
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
