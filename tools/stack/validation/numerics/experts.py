# SPDX-License-Identifier: Apache-2.0
"""Reference of gpt-oss's mixture of experts in float64, with mutants: routing, MXFP4 experts with biases, SwiGLU.

gpt-oss has hidden and intermediate size 2880 and 128 experts. A token takes the 4 largest router logits, with a softmax over those
four. The rows of gate and up are interleaved in the first weight. The activation is (up + 1) * gate * sigmoid(1.702 gate), with gate at
most 7 and up within -7 .. 7.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.blocks import MXFP4, MXFP8, Blocks, Rounding, drawn, quantize
from stack.validation.numerics.fixed_point import fixed_point
from stack.validation.numerics.formats import Array, Single, bfloat16
from stack.validation.numerics.judging import Fault, Rounded, Rows, Truth

ALPHA = 1.702
LIMIT = 7.0
TOP = 4
Ids = npt.NDArray[np.int32]
Sizes = tuple[int, int]
"""Hidden and intermediate size."""

_CANDIDATES = 64
"""Number of blocks among which one is chosen whose doubling has the largest effect."""


@dataclass(frozen=True, slots=True)
class Glu:
    """Constants of (up + beta) * gate * sigmoid(alpha gate), with gate at most `limit` and |up| too; defaults are gpt-oss's."""

    alpha: float = ALPHA
    beta: float = 1.0
    limit: float = LIMIT


OSS = Glu()


@dataclass(frozen=True, slots=True, eq=False)
class Expert:
    """An expert: `gate_up` [2 x intermediate, hidden], even rows are the gate's; `down` [hidden, intermediate]; bfloat16 biases."""

    gate_up: Blocks
    gate_up_bias: Single
    down: Blocks
    down_bias: Single


@dataclass(frozen=True, slots=True)
class Routed:
    """The tokens of one expert: their rows, and the expert's weight for each."""

    expert: int
    rows: Rows
    weights: Array


@dataclass(frozen=True)
class Experts:
    """A layer and its tokens, drawn from a seed. Each expert is drawn on request, since all of them would fill the memory.

    `activations`: "bfloat16", or "mxfp8" if the kernel quantizes the inputs of both multiplications on the fly, by the smallest
    power of two that saturates nothing. `top`: number of experts per token. `twice`: a token's second expert is its first again.
    `elsewhere`: the number of first experts that are on other machines and add nothing to the output. `bias`: whether there are
    biases. `glu`: constants of the activation.
    """

    tokens: int
    experts: int = 128
    hidden: int = 2880
    intermediate: int = 2880
    activations: str = "bfloat16"
    seed: int = 0
    top: int = TOP
    twice: bool = False
    elsewhere: int = 0
    bias: bool = True
    glu: Glu = OSS

    @cached_property
    def inputs(self) -> Single:
        """Tokens, bfloat16 in float32: [tokens, hidden]."""
        return bfloat16(self._draw(-1).standard_normal((self.tokens, self.hidden)))

    @cached_property
    def logits(self) -> Single:
        """Router logits, bfloat16 in float32: [tokens, experts]."""
        return bfloat16(self._draw(-2).standard_normal((self.tokens, self.experts)))

    @cached_property
    def route(self) -> tuple[Ids, Single]:
        """Experts of each token, the best first, and their weights: int32 and float32 [tokens, top]."""
        ids, weights = route(self.logits, self.top)
        if self.twice:
            ids[:, 1] = ids[:, 0]
        return ids, weights

    def expert(self, number: int) -> Expert:
        """Draw an expert; each call returns the same."""
        draw = self._draw(number)
        # Few inputs need larger weights, so that some products exceed the activation's limit.
        more = int(np.ceil(np.log2(2880 / self.hidden) / 2))
        gate_up = drawn(MXFP4, (2 * self.intermediate, self.hidden), draw, (-8 + more, -5 + more))
        down = drawn(MXFP4, (self.hidden, self.intermediate), draw, (-9, -6))
        biases = (bfloat16(self.bias * draw.standard_normal(rows)) for rows in (2 * self.intermediate, self.hidden))
        return Expert(gate_up, next(biases), down, next(biases))

    def routed(self) -> Iterator[Routed]:
        """Yield every local expert that has tokens. If a token has an expert twice, its weights are added. An unknown id adds nothing."""
        ids, weights = self.route
        for number in np.unique(ids[(ids >= self.elsewhere) & (ids < self.experts)]):
            shares = np.where(ids == number, weights.astype(np.float64), 0).sum(axis=1)
            rows = np.flatnonzero((ids == number).any(axis=1))
            yield Routed(int(number), rows, shares[rows])

    def truth(self) -> Truth:
        """Compute the output [tokens, hidden], and the outputs of wrong kernels."""
        return _truth(self)

    def rounded(self, _: Truth) -> Rounded:
        """Compute the output of a kernel in the decode kernels' format, and of kernels that round more often.

        The format: the factors of both products in fixed point, exact sums, the output in bfloat16.
        """
        return _rounded(self)

    def _draw(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.experts, self.hidden, self.intermediate, what + 2])


def route(logits: Single, top: int = TOP) -> tuple[Ids, Single]:
    """Find the `top` largest logits of each row, largest first, equal ones in their order, and a softmax over them."""
    best = np.argsort(-logits, axis=1, kind="stable")[:, :top]
    chosen = np.take_along_axis(logits, best, axis=1).astype(np.float64)
    powers = np.exp(chosen - chosen[:, :1])
    return best.astype(np.int32), (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32)


def swiglu(gate_up: npt.NDArray[Any], glu: Glu = OSS) -> npt.NDArray[Any]:
    """Apply gpt-oss's activation to interleaved columns: [n, 2 k] -> [n, k]."""
    gate = np.minimum(gate_up[:, 0::2], glu.limit)
    up = np.clip(gate_up[:, 1::2], -glu.limit, glu.limit)
    # For a gate far below zero, exp overflows to infinity, and the quotient becomes zero, as it should.
    with np.errstate(over="ignore"):
        return np.asarray((up + glu.beta) * gate / (1 + np.exp(-glu.alpha * gate)))


def swapped(gate_up: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Swap gate and up."""
    return gate_up.reshape(len(gate_up), -1, 2)[:, :, ::-1].reshape(gate_up.shape)


def _truth(layer: Experts) -> Truth:
    shape = (layer.tokens, layer.hidden)
    reference = np.zeros(shape)
    mutants: dict[str, Array] = defaultdict(lambda: np.zeros(shape))
    faults: list[Fault] = []
    routed = list(layer.routed())
    busiest = max(routed, key=lambda routed_to: len(routed_to.rows)).expert
    for part in routed:
        expert = layer.expert(part.expert)
        good, gate_up, hidden = _contribution(layer, expert, part)
        reference[part.rows] += good
        for name, wrong in _wrong(layer, expert, part, gate_up):
            mutants[name][part.rows] += wrong
        mutants["one expert dropped"][part.rows] += 0 if part.expert == busiest else good
        if part.expert == busiest:
            faults = list(_doubled(layer, expert, part, gate_up, hidden))
    return Truth(reference, dict(mutants), faults)


def _rounded(layer: Experts) -> Rounded:
    ideal, *coarser = (np.zeros((layer.tokens, layer.hidden)) for _ in range(4))
    for part in layer.routed():
        expert = layer.expert(part.expert)
        weights = part.weights[:, None]
        gate_up = fixed_point(layer.inputs[part.rows]) @ expert.gate_up.values().T + expert.gate_up_bias
        down = expert.down.values().T
        activated = swiglu(gate_up, layer.glu)
        share, coarse, between = (
            weights * (factor @ down + expert.down_bias)
            for factor in (
                fixed_point(activated),
                fixed_point(swiglu(bfloat16(gate_up).astype(np.float64), layer.glu)),
                bfloat16(activated).astype(np.float64),
            )
        )
        added: tuple[Array, ...] = (share, _single(share), coarse, between)
        for output, its in zip((ideal, *coarser), added, strict=True):
            output[part.rows] += its
    by_share, by_product, by_activation = map(_single, coarser)
    # If a token has one expert, that share is the output, which every kernel rounds.
    shares = {"each expert's share rounded": by_share} if layer.top > 1 else {}
    return Rounded(
        _single(ideal), {**shares, "first product rounded": by_product, "activation rounded to bfloat16": by_activation}
    )


def _single(numbers: Array) -> Array:
    """Round to bfloat16, held as float64."""
    return bfloat16(numbers).astype(np.float64)


def _contribution(layer: Experts, expert: Expert, part: Routed) -> tuple[Array, Array, Array]:
    """Compute what an expert adds to its tokens, and on the way the first product with its bias, and the activation."""
    inputs = _activation(layer, layer.inputs[part.rows].astype(np.float64))
    gate_up = inputs @ expert.gate_up.values().T + expert.gate_up_bias
    hidden = _activation(layer, swiglu(gate_up, layer.glu))
    return part.weights[:, None] * (hidden @ expert.down.values().T + expert.down_bias), gate_up, hidden


def _activation(layer: Experts, numbers: Array) -> Array:
    """Quantize a multiplication's input if the kernel does so."""
    return quantize(MXFP8, numbers, Rounding.UP).values() if layer.activations == "mxfp8" else numbers


def _wrong(layer: Experts, expert: Expert, part: Routed, gate_up: Array) -> Iterator[tuple[str, Array]]:
    """Yield what wrong kernels add for one expert; computed in float32, since a few digits suffice."""
    weights = part.weights.astype(np.float32)[:, None]
    inputs = _activation(layer, layer.inputs[part.rows].astype(np.float64)).astype(np.float32)
    known = gate_up.astype(np.float32)
    matrix = expert.down.single().T

    def down(first: Single, second: Single = matrix, bias: Single = expert.down_bias, glu: Glu = layer.glu) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # with wrong scales
            hidden = _activation(layer, swiglu(first, glu)).astype(np.float32)
            return np.asarray(weights * (hidden @ second + bias), np.float64)

    yield "gate and up swapped", down(swapped(known))
    # A layer without a limit is told from one with that of gpt-oss.
    limited, limit = ("activation not limited", np.inf) if np.isfinite(layer.glu.limit) else ("activation limited", LIMIT)
    yield limited, down(known, glu=replace(layer.glu, limit=limit))
    yield "activation with alpha 1", down(known, glu=replace(layer.glu, alpha=1.0))
    if layer.bias:
        yield "first bias missing", down(known - expert.gate_up_bias)
        yield "second bias missing", down(known, bias=np.zeros_like(expert.down_bias))
    for name, change in (
        ("nibbles swapped", Blocks.nibbles_swapped),
        ("scales shifted by a block", Blocks.scales_shifted),
        ("one scale a row", Blocks.scales_averaged),
    ):
        first = inputs @ change(expert.gate_up).single().T + expert.gate_up_bias
        yield name, down(first, change(expert.down).single().T)


def _doubled(layer: Experts, expert: Expert, part: Routed, gate_up: Array, hidden: Array) -> Iterator[Fault]:
    """Double one block in each matrix of an expert: of some candidates, the one with the largest effect on these tokens."""
    draw = np.random.default_rng(layer.seed)
    inputs = _activation(layer, layer.inputs[part.rows].astype(np.float64))
    weights = part.weights[:, None]

    def moved(row: int, added: Array) -> Array:
        """Compute how the activation changes when `added` is added to a row of the first product."""
        pair = gate_up[:, row - row % 2 : row - row % 2 + 2]
        wrong = pair.copy()
        wrong[:, row % 2] += added
        return np.asarray(weights * (swiglu(wrong, layer.glu) - swiglu(pair, layer.glu)), np.float64)

    changes = [(row, moved(row, added)) for row, added in _doublings(expert.gate_up, inputs, draw)]
    row, change = max(changes, key=lambda pair: float(np.linalg.norm(pair[1])))
    column = expert.down.values()[:, row // 2]
    yield Fault("a block of the first weight doubled", part.rows, slice(None), change * column)

    row, added = max(_doublings(expert.down, hidden, draw), key=lambda pair: float(np.linalg.norm(pair[1])))
    yield Fault("a block of the second weight doubled", part.rows, slice(row, row + 1), weights * added[:, None])


def _doublings(blocks: Blocks, inputs: Array, draw: np.random.Generator) -> Iterator[tuple[int, Array]]:
    """Yield candidate rows, each with what doubling one of its blocks adds to every token in that row."""
    rows, count = blocks.scales.shape
    chosen = draw.integers(0, rows, _CANDIDATES), draw.integers(0, count, _CANDIDATES)
    values = Blocks(blocks.form, blocks.codes[chosen[0]], blocks.scales[chosen[0]]).values()
    for place, (row, block) in enumerate(zip(*chosen, strict=True)):
        columns = slice(block * blocks.form.size, (block + 1) * blocks.form.size)
        yield int(row), inputs[:, columns] @ values[place, columns]
