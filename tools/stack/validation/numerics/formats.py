# SPDX-License-Identifier: Apache-2.0
"""Floating-point formats of four and eight bits: decoded by their definition, encoded to the nearest value.

Sources: OCP Microscaling Formats (MX) 1.0, tables 1, 2, 5 and 7 (E4M3, E2M1, E8M0); IEEE 754 for rounding to the nearest, ties
to the even code. Values beyond the largest one saturate, as in PTX's `cvt.rn.satfinite` and every inference kernel.
"""

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Single = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

E8M0_BIAS = 127
E8M0_NAN = 0xFF


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A signed format with the sign in the highest bit. `nan` is the magnitude's code of NaN, None if the format has no NaN."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int | None

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def bias(self) -> int:
        """Number that is subtracted from the exponent field."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return float(magnitudes(self)[-1])


E2M1 = Minifloat("e2m1", 2, 1, None)
E4M3 = Minifloat("e4m3", 4, 3, 0x7F)


@functools.cache
def magnitudes(form: Minifloat) -> Array:
    """List the finite values without a sign, in order: the index of each is its code."""
    codes = np.arange(form.sign)
    if form.nan is not None:
        codes = codes[codes != form.nan]
    field, fraction = codes >> form.mantissa_bits, codes & ((1 << form.mantissa_bits) - 1)
    # If the exponent field is zero the hidden bit is 0: these are the subnormal values.
    significand = fraction / (1 << form.mantissa_bits) + (field > 0)
    return np.asarray(np.ldexp(significand, np.maximum(field, 1) - form.bias), np.float64)


@functools.cache
def values(form: Minifloat) -> Array:
    """List the value of every code, NaN included."""
    plain = np.full(form.sign, np.nan)
    plain[: len(magnitudes(form))] = magnitudes(form)
    return np.concatenate([plain, -plain])


def decode(form: Minifloat, codes: Bytes) -> Array:
    """Decode codes of any shape.

    Raises:
        ValueError: a code has more bits than the format.

    """
    if codes.size and int(codes.max()) >= 2 * form.sign:
        raise ValueError(f"{form.name} has no code {int(codes.max()):#x}")
    return values(form)[codes]


def encode(form: Minifloat, numbers: npt.ArrayLike, *, cut: bool = False) -> Bytes:
    """Encode numbers to the nearest values, ties to the even code. Saturates; keeps the sign of zero.

    `cut`: round towards zero. No specification asks for this, but vLLM's CPU kernels do it to a KV cache.

    Raises:
        ValueError: a number is NaN, and the format has none.

    """
    given = np.asarray(numbers, np.float64)
    nan = np.isnan(given)
    if form.nan is None and nan.any():
        raise ValueError(f"{form.name} has no NaN")
    known = magnitudes(form)
    between = (known[:-1] + known[1:]) / 2  # exact: both are multiples of a power of two far above float64's last bit
    size = np.where(nan, 0.0, np.abs(given))
    if cut:
        nearest = np.searchsorted(known, size, "right") - 1
    else:
        below, above = np.searchsorted(between, size, "left"), np.searchsorted(between, size, "right")
        nearest = np.where(below % 2 == 0, below, above)  # they differ only for a tie
    codes = np.where(nan, form.nan or 0, nearest) | np.where(np.signbit(given), form.sign, 0)
    return codes.astype(np.uint8)


def decode_e8m0(codes: Bytes) -> Array:
    """Decode powers of two, 2^-127 to 2^127; 255 is NaN."""
    return np.where(codes == E8M0_NAN, np.nan, np.ldexp(1.0, codes.astype(np.int64) - E8M0_BIAS))


def pack(codes: Bytes) -> Bytes:
    """Pack two four-bit codes per byte along the last axis, the first in the low half: [.., n] -> [.., n / 2].

    Raises:
        ValueError: the number of codes is odd, or one has more than four bits.

    """
    if codes.shape[-1] % 2:
        raise ValueError("an odd number of four-bit codes does not fill bytes")
    if codes.size and int(codes.max()) > 0xF:
        raise ValueError(f"{int(codes.max()):#x} has more than four bits")
    return codes[..., 0::2] | (codes[..., 1::2] << np.uint8(4))


def unpack(packed: Bytes) -> Bytes:
    """Undo `pack`: [.., n / 2] -> [.., n]."""
    return np.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], axis=-1).reshape(*packed.shape[:-1], -1)


def bfloat16(numbers: npt.ArrayLike) -> Single:
    """Round to the nearest bfloat16, ties to even, held as float32; NaN stays NaN."""
    single = np.asarray(numbers, np.float32)
    bits = np.ascontiguousarray(single).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(single), single, rounded.view(np.float32)).astype(np.float32)
