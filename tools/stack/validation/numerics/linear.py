# SPDX-License-Identifier: Apache-2.0
"""Reference of a dense layer in float64, with mutants; its weight is in bfloat16 or in a block format.

gpt-oss has qkv 2880 -> 5120, o 4096 -> 2880, router 2880 -> 128, lm_head 2880 -> 201088 (without a bias).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stack.validation.numerics.blocks import MXFP4, MXFP8, NVFP4, BlockFormat, Blocks, Rounding, drawn, quantize
from stack.validation.numerics.formats import Array, Single, bfloat16
from stack.validation.numerics.judging import Fault, Rounded, Truth

FORMATS: dict[str, BlockFormat] = {form.name: form for form in (MXFP4, MXFP8, NVFP4)}

_CHUNK = 8192
"""Rows of a weight that are in float64 at a time: all rows of lm_head would take 4.6 GB."""
_EXPONENTS = {"mxfp4": (-9, -6), "mxfp8": (-14, -11), "nvfp4": (-9, -6)}
"""Exponents of the blocks' scales for which unit inputs give outputs of the order of one."""
_BFLOAT16_EXPONENT = -12
_DOUBLED = 32
_TENSOR_SCALE = 0.75


@dataclass(frozen=True)
class Linear:
    """Tokens [tokens, inputs] times a weight [outputs, inputs], drawn from a seed.

    `weight`: bfloat16, mxfp4, mxfp8 or nvfp4. `activations`: bfloat16, or mxfp8 or nvfp4 if the kernel quantizes them on the fly:
    mxfp8 by the smallest power of two that saturates nothing, nvfp4 by `input_scale`.
    """

    tokens: int
    inputs: int
    outputs: int
    weight: str = "bfloat16"
    activations: str = "bfloat16"
    bias: bool = True
    seed: int = 0

    @cached_property
    def x(self) -> Single:
        """Tokens, bfloat16 in float32: [tokens, inputs]."""
        return bfloat16(self._draw(0).standard_normal((self.tokens, self.inputs)))

    @cached_property
    def added(self) -> Single:
        """Bias, bfloat16 in float32: [outputs]."""
        numbers = bfloat16(self._draw(1).standard_normal(self.outputs))
        return numbers if self.bias else np.zeros_like(numbers)

    @property
    def input_scale(self) -> float:
        """NVFP4's scale of all activations, which maps the largest to the largest scale times the largest element."""
        return quantize(NVFP4, self.x).tensor_scale

    def chunks(self) -> Iterator[tuple[slice, Blocks | Single]]:
        """Yield the weight, some rows at a time; each call yields the same."""
        for first in range(0, self.outputs, _CHUNK):
            rows = slice(first, min(first + _CHUNK, self.outputs))
            yield rows, self._rows(rows)

    def seen(self) -> Array:
        """Return the tokens as the multiplication gets them, quantized if the kernel does so."""
        given = self.x.astype(np.float64)
        if self.activations == "bfloat16":
            return given
        if self.activations == "nvfp4":
            return quantize(NVFP4, given, tensor_scale=self.input_scale).values()
        return quantize(MXFP8, given, Rounding.UP).values()

    def truth(self) -> Truth:
        """Compute the output [tokens, outputs], and the outputs of wrong kernels."""
        return _truth(self)

    def rounded(self, truth: Truth) -> Rounded:
        """Compute the output of a kernel that rounds only its output to bfloat16, and of kernels that round more often."""
        return _rounded(self, truth)

    def _rows(self, rows: slice) -> Blocks | Single:
        draw = self._draw(2 + rows.start)
        shape = (rows.stop - rows.start, self.inputs)
        if self.weight == "bfloat16":
            # Eight-bit integers, which bfloat16 represents exactly, are much cheaper to draw than a normal distribution.
            whole = np.frombuffer(draw.bytes(shape[0] * shape[1]), np.int8).reshape(shape)
            return np.ldexp(whole.astype(np.float32), _BFLOAT16_EXPONENT)
        blocks = drawn(FORMATS[self.weight], shape, draw, _EXPONENTS[self.weight])
        if self.weight == "nvfp4":
            return Blocks(blocks.form, blocks.codes, blocks.scales, _TENSOR_SCALE)
        return blocks

    def _draw(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.inputs, self.outputs, what])


def values(weight: Blocks | Single) -> Array:
    """Return a weight's values in float64, whatever its format."""
    return weight.values() if isinstance(weight, Blocks) else weight.astype(np.float64)


def _truth(layer: Linear) -> Truth:
    x = layer.seen()
    shape = (layer.tokens, layer.outputs)
    reference = np.zeros(shape)
    mutants: dict[str, Array] = {}
    faults: list[Fault] = []
    for rows, weight in layer.chunks():
        reference[:, rows] = x @ values(weight).T + layer.added[rows]
        for name, wrong in _wrong(weight):
            mutants.setdefault(name, np.zeros(shape))[:, rows] = x @ wrong.T + layer.added[rows]
        if not faults:
            faults.append(_doubled(layer, x, weight))
    if layer.bias:
        mutants["bias missing"] = reference - layer.added
    mutants["outputs shifted by one"] = np.roll(reference, 1, axis=1)
    return Truth(reference, mutants, faults)


def _rounded(layer: Linear, truth: Truth) -> Rounded:
    x, middle = layer.seen(), layer.inputs // 2
    split = np.zeros_like(truth.reference)
    for rows, weight in layer.chunks():
        known = values(weight)
        for half in (slice(middle), slice(middle, None)):
            split[:, rows] += bfloat16(x[:, half] @ known[:, half].T)
    coarser = {"each half of the inputs rounded": bfloat16(split + layer.added).astype(np.float64)}
    return Rounded(bfloat16(truth.reference).astype(np.float64), coarser)


def _wrong(weight: Blocks | Single) -> Iterator[tuple[str, Array]]:
    """Yield what wrong kernels read as the weight."""
    if not isinstance(weight, Blocks):
        short = weight.astype(np.float64)
        short[:, -_DOUBLED:] = 0
        yield "last inputs missing", short
        return
    if weight.form.packed:
        yield "nibbles swapped", weight.nibbles_swapped().values()
    yield "scales shifted by a block", weight.scales_shifted().values()
    yield "one scale a row", weight.scales_averaged().values()


def _doubled(layer: Linear, x: Array, weight: Blocks | Single) -> Fault:
    """Double one block of the weight: of the first rows, the block with the largest effect on these tokens."""
    size = weight.form.size if isinstance(weight, Blocks) else _DOUBLED
    few = (
        Blocks(weight.form, weight.codes[:16], weight.scales[:16], weight.tensor_scale)
        if isinstance(weight, Blocks)
        else weight[:16]
    )
    blocked = values(few).reshape(len(few.scales if isinstance(few, Blocks) else few), -1, size)
    added = np.einsum("tbk,rbk->rbt", x.reshape(layer.tokens, -1, size), blocked)
    row, block = np.unravel_index(np.argmax((added**2).sum(axis=2)), added.shape[:2])
    here = slice(int(row), int(row) + 1)
    return Fault("a block of the weight doubled", np.arange(layer.tokens), here, added[row, block][:, None])
