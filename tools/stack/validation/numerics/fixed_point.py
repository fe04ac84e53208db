# SPDX-License-Identifier: Apache-2.0
"""Fixed point of the MXFP4 decode kernels: 14 bits and a sign, with a power of two for each block of 32 columns.

The kernels' page (docs/decode-kernels.md) promises this format. A block's largest number has its leading bit in the highest of the 14.
"""

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.formats import Array

BITS = 14
BLOCK = 32
LOWEST = -112
"""Exponent below which a block's step shrinks no further: its scale would be a subnormal float32."""


def fixed_point(numbers: npt.ArrayLike, bits: int = BITS, *, cut: bool = False) -> Array:
    """Round numbers [.., columns] to fixed point, ties to even, in blocks of 32 columns.

    A block with a NaN or an infinity becomes NaN. `cut`: round towards zero, as a wrong kernel would.

    Raises:
        ValueError: the columns are not a multiple of 32.

    """
    given = np.asarray(numbers, np.float64)
    if given.shape[-1] % BLOCK:
        raise ValueError(f"{given.shape[-1]} columns are not a multiple of {BLOCK}")
    blocked = given.reshape(*given.shape[:-1], -1, BLOCK)
    largest = np.abs(blocked).max(axis=-1, keepdims=True)
    finite = np.isfinite(largest)
    exponent = np.frexp(np.where(finite, largest, 1.0))[1] - 1
    step = np.ldexp(1.0, np.maximum(exponent, LOWEST) - (bits - 1))
    with np.errstate(invalid="ignore"):
        whole = np.trunc(blocked / step) if cut else np.rint(blocked / step)
    return np.where(finite, whole * step, np.nan).reshape(given.shape)
