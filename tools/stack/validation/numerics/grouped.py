# SPDX-License-Identifier: Apache-2.0
"""A grouped GEMM: tokens of several groups, each times its group's own weight, MXFP8 by MXFP4; what a MoE does twice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stack.validation.numerics.blocks import MXFP8, Blocks, Rounding, quantize
from stack.validation.numerics.formats import Array
from stack.validation.numerics.judging import Fault, Rows, Truth
from stack.validation.numerics.linear import Linear


@dataclass(frozen=True)
class Grouped:
    """So many tokens a group [tokens of all, inputs], each group times its own weight [outputs, inputs]; drawn from a seed.

    Activations are in MXFP8 before the kernel sees them, so that what it computes is exact but for the sum and the output.
    """

    groups: tuple[int, ...]
    inputs: int
    outputs: int
    seed: int = 0

    @property
    def tokens(self) -> int:
        """Those of all groups."""
        return sum(self.groups)

    def layer(self, group: int) -> Linear:
        """A group by itself."""
        seed = self.seed * len(self.groups) + group
        return Linear(self.groups[group], self.inputs, self.outputs, "mxfp4", "mxfp8", bias=False, seed=seed)

    def activations(self, group: int) -> Blocks:
        """A group's tokens as the kernel gets them: MXFP8 [tokens, inputs]."""
        return quantize(MXFP8, self.layer(group).x, Rounding.UP)

    def weight(self, group: int) -> Blocks:
        """A group's weight: MXFP4 [outputs, inputs]."""
        parts = [part for _, part in self.layer(group).chunks() if isinstance(part, Blocks)]
        return replace(
            parts[0],
            codes=np.concatenate([part.codes for part in parts]),
            scales=np.concatenate([part.scales for part in parts]),
        )

    def rows(self) -> Iterator[tuple[int, Rows]]:
        """Every group that has tokens, and their places among all."""
        first = 0
        for group, tokens in enumerate(self.groups):
            if tokens:
                yield group, np.arange(first, first + tokens)
            first += tokens

    def truth(self) -> Truth:
        """The output [tokens, outputs], and what wrong kernels make of it."""
        return _truth(self)


def _truth(problem: Grouped) -> Truth:
    shape = (problem.tokens, problem.outputs)
    reference = np.zeros(shape)
    mutants: dict[str, Array] = {}
    faults: list[Fault] = []
    for group, rows in problem.rows():
        found = problem.layer(group).truth()
        reference[rows] = found.reference
        for name, wrong in (*found.mutants.items(), *_wrong(problem, group)):
            mutants.setdefault(name, np.zeros(shape))[rows] = wrong
        for fault in found.faults:
            faults.append(replace(fault, name=f"{fault.name} in group {group}", rows=rows[fault.rows]))
    return Truth(reference, mutants, faults)


def _wrong(problem: Grouped, group: int) -> Iterator[tuple[str, Array]]:
    """What a kernel computes that takes the wrong weight or the wrong scales for a group's tokens."""
    activations = problem.activations(group)
    weight = problem.weight(group).values().T
    following = problem.weight((group + 1) % len(problem.groups)).values().T
    yield "the next group's weight", activations.values() @ following
    yield "activations' scales shifted by a block", activations.scales_shifted().values() @ weight
