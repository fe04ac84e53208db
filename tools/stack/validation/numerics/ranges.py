# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts whose numbers are at the ends of what the decode kernels promise: scales and outliers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.blocks import MXFP4, Blocks
from stack.validation.numerics.experts import Expert, Experts, swiglu
from stack.validation.numerics.fixed_point import BITS, BLOCK, fixed_point
from stack.validation.numerics.formats import E8M0_BIAS, Array, Single, bfloat16
from stack.validation.numerics.judging import Rounded, Truth

LOWEST_SCALE, HIGHEST_SCALE = -61, 65
"""Exponents of the scales with which the kernels are exact."""
LOUD = 10**6
"""What is drawn for outliers: no number of an expert."""
SPREAD = 3
"""Scales of one block of columns differ from row to row by a factor of up to 2^3."""


def plain(layer: Experts) -> Experts:
    """Make the layer of the same sizes that has nothing special."""
    return Experts(**{field.name: getattr(layer, field.name) for field in fields(Experts)})


def silenced(blocks: Blocks, columns: npt.NDArray[np.intp]) -> Blocks:
    """Make the weights of some columns zero."""
    codes = blocks.codes.copy()
    codes[:, columns // 2] &= np.where(columns % 2, 0x0F, 0xF0).astype(np.uint8)
    return Blocks(blocks.form, codes, blocks.scales, blocks.tensor_scale)


def loud(columns: int) -> npt.NDArray[np.intp]:
    """Choose one column of each block of 32, another place in each."""
    blocks = np.arange(columns // BLOCK)
    return blocks * BLOCK + blocks * 7 % BLOCK


def outliers(numbers: Single, columns: npt.NDArray[np.intp], draw: np.random.Generator) -> Single:
    """Put numbers of 100 to 250, of both signs, into these columns of each token."""
    sizes = draw.uniform(100, 250, (len(numbers), len(columns))) * draw.choice([-1.0, 1.0], (len(numbers), len(columns)))
    numbers[:, columns] = bfloat16(sizes)
    return numbers


def spread(blocks: int) -> npt.NDArray[np.intp]:
    """Spread exponents of scales evenly from the lowest to 2^48, one for each block; rows have up to 2^3 times as much."""
    return np.rint(np.linspace(LOWEST_SCALE, 48, blocks)).astype(np.intp)


@dataclass(frozen=True)
class Outliers(Experts):
    """Inputs of hundreds in few columns, as gpt-oss has them.

    `silent`: there is one in each block of 32, in the first product and in the second, and its weights are zero. So each block's
    step is as large as its outlier asks for, and the output shows how the numbers beside it were rounded.
    """

    silent: bool = True

    @cached_property
    def inputs(self) -> Single:
        """Tokens with outliers."""
        columns = loud(self.hidden) if self.silent else np.array([3, self.hidden // 2, self.hidden - 2])
        return outliers(bfloat16(self._draw(-1).standard_normal((self.tokens, self.hidden))), columns, self._draw(LOUD))

    def expert(self, number: int) -> Expert:
        """Draw an expert; silent columns have no weights, and rows before those of the second product are 64 times as large."""
        expert = Experts.expert(self, number)
        if not self.silent:
            return expert
        columns = loud(self.intermediate)
        scales = expert.gate_up.scales.copy()
        scales[2 * columns] += 6  # gates; where they are negative, the activation is zero
        gate_up = Blocks(expert.gate_up.form, expert.gate_up.codes, scales)
        first = silenced(gate_up, loud(self.hidden))
        return Expert(first, expert.gate_up_bias, silenced(expert.down, columns), expert.down_bias)

    def truth(self) -> Truth:
        """Compute the output, and wrong ones; a change of a gate whose column has no weights is none."""
        truth = Experts.truth(self)
        return replace(truth, faults=[fault for fault in truth.faults if fault.delta.any()])

    def rounded(self, truth: Truth) -> Rounded:
        """Compare with kernels of fewer bits: beside silent outliers nothing else is as coarse as the format.

        Outliers with weights reach the limit of the activation, which hides other roundings.
        """
        if not self.silent:
            return Rounded(Experts.rounded(self, truth).ideal, {})
        return Rounded(
            _in_fixed_point(self, BITS),
            {
                "one bit fewer": _in_fixed_point(self, BITS - 1),
                "two bits fewer": _in_fixed_point(self, BITS - 2),
                "cut instead of rounded": _in_fixed_point(self, BITS, cut=True),
            },
        )


def _in_fixed_point(layer: Experts, bits: int, *, cut: bool = False) -> Array:
    output = np.zeros((layer.tokens, layer.hidden))
    for part in layer.routed():
        expert = layer.expert(part.expert)
        first = fixed_point(layer.inputs[part.rows], bits, cut=cut) @ expert.gate_up.values().T + expert.gate_up_bias
        second = fixed_point(swiglu(first, layer.glu), bits, cut=cut) @ expert.down.values().T + expert.down_bias
        output[part.rows] += part.weights[:, None] * second
    return bfloat16(output).astype(np.float64)


class Product(StrEnum):
    """One of the two products of an expert."""

    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True)
class Scaled(Experts):
    """Scales of one product over the documented range; activations undo them, so that every block counts alike.

    `high`: only its upper end, which no activation undoes: it is 2^-50 at least.
    """

    product: Product = Product.FIRST
    high: bool = False

    @cached_property
    def _powers(self) -> npt.NDArray[np.intp]:
        """Exponents of the product's scales, one for each block of columns."""
        blocks = (self.hidden if self.product is Product.FIRST else self.intermediate) // BLOCK
        return np.full(blocks, HIGHEST_SCALE - SPREAD, np.intp) if self.high else spread(blocks)

    @property
    def _inputs_by(self) -> npt.NDArray[np.intp]:
        """Exponents by which activations before the product are larger than usual."""
        return np.full_like(self._powers, -46) if self.high else -5 - self._powers

    @cached_property
    def inputs(self) -> Single:
        """Tokens, larger where scales are small."""
        numbers = bfloat16(self._draw(-1).standard_normal((self.tokens, self.hidden)))
        return np.ldexp(numbers, self._inputs_by.repeat(BLOCK)) if self.product is Product.FIRST else numbers

    def expert(self, number: int) -> Expert:
        """Draw an expert with these scales. Before the second product the gates decide how large an activation is."""
        expert, draw = Experts.expert(self, number), self._draw(number)
        more = draw.integers(0, SPREAD, 2**20, endpoint=True)
        if self.product is Product.FIRST:
            gate_up, down = _scaled(expert.gate_up, self._powers, more), expert.down
        else:
            by = self._inputs_by.repeat(BLOCK)
            scales = expert.gate_up.scales.astype(np.intp)
            scales[0::2] += by[:, None]
            gate_up = Blocks(MXFP4, expert.gate_up.codes, scales.astype(np.uint8))
            down = _scaled(expert.down, self._powers, more)
        return Expert(gate_up, expert.gate_up_bias, down, expert.down_bias)

    def truth(self) -> Truth:
        """Compute the output, and the outputs of kernels that read some scales as others. Nothing else decides at the upper end."""
        truth = Experts.truth(self)
        kept = {name: wrong for name, wrong in truth.mutants.items() if not self.high or name in _BY_SCALES}
        if not self.high:
            kept |= {name: self._output(change) for name, change in _OTHER_SCALES.items()}
        return replace(truth, mutants=kept)

    def _output(self, change: Callable[[Array], Array]) -> Array:
        """Compute the output with other scales of the product."""
        output = np.zeros((self.tokens, self.hidden))
        for part in self.routed():
            expert = self.expert(part.expert)
            weights = {Product.FIRST: expert.gate_up, Product.SECOND: expert.down}
            wrong = {product: weights[product].values() for product in Product}
            blocks = weights[self.product]
            by = change(blocks.factors()) / blocks.factors()
            wrong[self.product] = wrong[self.product] * by.repeat(BLOCK, axis=1)
            first = self.inputs[part.rows].astype(np.float64) @ wrong[Product.FIRST].T + expert.gate_up_bias
            second = swiglu(first, self.glu) @ wrong[Product.SECOND].T + expert.down_bias
            output[part.rows] += part.weights[:, None] * second
        return output


_BY_SCALES = ("nibbles swapped", "scales shifted by a block", "one scale a row", "one expert dropped")
_OTHER_SCALES: Mapping[str, Callable[[Array], Array]] = {
    "scales below 2^-15 are 0": lambda scales: np.where(scales < 2.0**-15, 0.0, scales),
    "scales from 2^0 on are twice as large": lambda scales: np.where(scales < 1, scales, 2 * scales),
}
"""Kernels that are right for the scales of gpt-oss."""


def _scaled(blocks: Blocks, powers: npt.NDArray[np.intp], more: npt.NDArray[np.int64]) -> Blocks:
    scales = powers + np.resize(more, blocks.scales.shape) + E8M0_BIAS
    return Blocks(blocks.form, blocks.codes, scales.astype(np.uint8))


@dataclass(frozen=True)
class Beyond(Experts):
    """Scales outside of the documented range. Small ones add nothing that is seen; gates with a large one reach the limit."""

    def expert(self, number: int) -> Expert:
        """Draw an expert; every third block has a small scale, and some gates one above all others."""
        expert = Experts.expert(self, number)
        first, second = expert.gate_up.scales.copy(), expert.down.scales.copy()
        for scales in (first, second):
            small = scales[:, 1::3]
            small[:] = E8M0_BIAS + LOWEST_SCALE - 1 - np.arange(small.size).reshape(small.shape) % (E8M0_BIAS + LOWEST_SCALE)
        first[0::8, 0] = E8M0_BIAS + HIGHEST_SCALE + 1 + np.arange(len(first[0::8])) % 20
        gate_up, down = Blocks(MXFP4, expert.gate_up.codes, first), Blocks(MXFP4, expert.down.codes, second)
        return Expert(gate_up, expert.gate_up_bias, down, expert.down_bias)
