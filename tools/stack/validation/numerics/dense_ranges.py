# SPDX-License-Identifier: Apache-2.0
"""Dense layers at the ends of what the decode kernels promise: scales, outliers, NaN."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from stack.validation.numerics.blocks import MXFP4, Blocks
from stack.validation.numerics.fixed_point import BITS, BLOCK, fixed_point
from stack.validation.numerics.formats import E8M0_BIAS, E8M0_NAN, Array, Single, bfloat16
from stack.validation.numerics.judging import Rounded, Truth
from stack.validation.numerics.linear import Linear, values
from stack.validation.numerics.ranges import HIGHEST_SCALE, LOUD, LOWEST_SCALE, SPREAD, loud, outliers, silenced, spread


def plain(layer: Linear) -> Linear:
    """Make the layer of the same sizes that has nothing special."""
    return Linear(**{field.name: getattr(layer, field.name) for field in fields(Linear)})


@dataclass(frozen=True)
class LinearOutliers(Linear):
    """Inputs of hundreds, one in each block of 32, whose weights are zero: the output shows how the numbers beside it were rounded.

    `fixed`: the kernel multiplies in fixed point, as the one for a single token and many rows does; otherwise in bfloat16.
    """

    fixed: bool = False

    @cached_property
    def x(self) -> Single:
        """Tokens with outliers."""
        numbers = bfloat16(self._draw(0).standard_normal((self.tokens, self.inputs)))
        return outliers(numbers, loud(self.inputs), self._draw(LOUD))

    def chunks(self) -> Iterator[tuple[slice, Blocks | Single]]:
        """Yield the weight, whose columns with outliers are zero."""
        for rows, weight in Linear.chunks(self):
            assert isinstance(weight, Blocks)
            yield rows, silenced(weight, loud(self.inputs))

    def rounded(self, truth: Truth) -> Rounded:
        """Compute the output of an ideal kernel, and of kernels with fewer bits."""
        if not self.fixed:
            return Linear.rounded(self, truth)
        fewer = {f"{less} bits fewer": self._in_fixed_point(BITS - less) for less in (1, 2)}
        return Rounded(self._in_fixed_point(BITS), {**fewer, "cut instead of rounded": self._in_fixed_point(BITS, cut=True)})

    def _in_fixed_point(self, bits: int, *, cut: bool = False) -> Array:
        x = fixed_point(self.x, bits, cut=cut)
        products = [x @ values(weight).T + self.added[rows] for rows, weight in self.chunks()]
        return bfloat16(np.concatenate(products, axis=1)).astype(np.float64)


@dataclass(frozen=True)
class LinearScaled(Linear):
    """Scales over the documented range; inputs undo them, so that every block counts alike. `high`: its upper end alone."""

    high: bool = False

    @property
    def _powers(self) -> Array:
        blocks = self.inputs // BLOCK
        return np.full(blocks, HIGHEST_SCALE - SPREAD, np.float64) if self.high else spread(blocks).astype(np.float64)

    @cached_property
    def x(self) -> Single:
        """Tokens, larger where scales are small."""
        numbers = bfloat16(self._draw(0).standard_normal((self.tokens, self.inputs)))
        by = np.full_like(self._powers, -46) if self.high else -5 - self._powers
        return np.ldexp(numbers, by.repeat(BLOCK).astype(np.intp))

    def _rows(self, rows: slice) -> Blocks | Single:
        weight = Linear._rows(self, rows)
        assert isinstance(weight, Blocks)
        more = self._draw(2 + rows.start).integers(0, SPREAD, weight.scales.shape, endpoint=True)
        return Blocks(MXFP4, weight.codes, (self._powers + more + E8M0_BIAS).astype(np.uint8))


@dataclass(frozen=True)
class LinearBeyond(Linear):
    """Scales outside of the documented range: small ones add nothing that is seen, and large ones give infinities or NaN.

    `large`: some rows have a large one, for kernels that multiply in bfloat16. In fixed point those are exact.
    """

    large: bool = True

    def _rows(self, rows: slice) -> Blocks | Single:
        weight = Linear._rows(self, rows)
        assert isinstance(weight, Blocks)
        scales = weight.scales.copy()
        scales[:, 1::3] = E8M0_BIAS + LOWEST_SCALE - 1 - np.arange(scales[:, 1::3].size).reshape(scales[:, 1::3].shape) % 66
        if self.large and rows.start == 0:
            scales[_LARGE, 0] = E8M0_BIAS + HIGHEST_SCALE + 1 + np.arange(len(_LARGE))
        return Blocks(MXFP4, weight.codes, scales)

    def truth(self) -> Truth:
        """Compute the output; rows with large scales are not finite."""
        reference = Linear.truth(self).reference
        if self.large:
            reference[:, _LARGE] = np.nan
        return Truth(reference, {"outputs shifted by one": np.roll(reference, 1, axis=1)})

    def rounded(self, truth: Truth) -> Rounded:
        """Compute the output of a kernel that rounds nothing but its output."""
        return Rounded(bfloat16(truth.reference).astype(np.float64), {})


_LARGE = np.array([2, 7, 11])
"""Rows with a scale beyond the range."""


@dataclass(frozen=True)
class LinearSpoiled(Linear):
    """A NaN makes its own token NaN, an infinity too, and a NaN scale its own row of the weight."""

    row: int = 5

    @cached_property
    def x(self) -> Single:
        """Tokens; the second has a NaN, the third an infinity."""
        numbers = plain(self).x.copy()
        numbers[1:2, 9] = np.nan
        numbers[2:3, 9] = np.inf
        return numbers

    def _rows(self, rows: slice) -> Blocks | Single:
        weight = Linear._rows(self, rows)
        assert isinstance(weight, Blocks)
        scales = weight.scales.copy()
        if rows.start == 0:
            scales[self.row, -1] = E8M0_NAN
        return Blocks(MXFP4, weight.codes, scales)

    def truth(self) -> Truth:
        """Compute the output, NaN where it has to be, and outputs in which they are lost or spread."""
        reference = plain(self).truth().reference
        reference[1:3], reference[:, self.row] = np.nan, np.nan
        lost = np.where(np.isnan(reference), 1.0, reference)
        return Truth(reference, {"NaN lost": lost, "NaN everywhere": np.full_like(reference, np.nan)})

    def rounded(self, truth: Truth) -> Rounded:
        """Compute the output of a kernel that rounds nothing but its output."""
        return Rounded(bfloat16(truth.reference).astype(np.float64), {})
