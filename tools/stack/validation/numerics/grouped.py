# SPDX-License-Identifier: Apache-2.0
"""A grouped GEMM in MXFP8 by MXFP4: the tokens of each group times the group's own weight, as a mixture of experts does twice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stack.validation.numerics.blocks import MXFP8, Blocks, Rounding, quantize
from stack.validation.numerics.formats import Array
from stack.validation.numerics.judging import Fault, Rows, Truth
from stack.validation.numerics.linear import Linear


@dataclass(frozen=True)
class Grouped:
    """Tokens of several groups [all tokens, inputs], each times its group's weight [outputs, inputs]; drawn from a seed.

    The kernel gets activations in MXFP8, so that only the sum and the output can have rounding errors.
    """

    groups: tuple[int, ...]
    inputs: int
    outputs: int
    seed: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens of all groups."""
        return sum(self.groups)

    def layer(self, group: int) -> Linear:
        """Return one group as a dense layer."""
        seed = self.seed * len(self.groups) + group
        return Linear(self.groups[group], self.inputs, self.outputs, "mxfp4", "mxfp8", bias=False, seed=seed)

    def activations(self, group: int) -> Blocks:
        """Return a group's tokens as the kernel gets them: MXFP8 [tokens, inputs]."""
        return quantize(MXFP8, self.layer(group).x, Rounding.UP)

    def weight(self, group: int) -> Blocks:
        """Return a group's weight: MXFP4 [outputs, inputs]."""
        parts = [part for _, part in self.layer(group).chunks() if isinstance(part, Blocks)]
        return replace(
            parts[0],
            codes=np.concatenate([part.codes for part in parts]),
            scales=np.concatenate([part.scales for part in parts]),
        )

    def rows(self) -> Iterator[tuple[int, Rows]]:
        """Yield every group that has tokens, and the rows of its tokens among all."""
        first = 0
        for group, tokens in enumerate(self.groups):
            if tokens:
                yield group, np.arange(first, first + tokens)
            first += tokens

    def truth(self) -> Truth:
        """Compute the output [tokens, outputs], and the outputs of wrong kernels."""
        return _truth(self)


def _truth(problem: Grouped) -> Truth:
    shape = (problem.tokens, problem.outputs)
    reference = np.zeros(shape)
    mutants: dict[str, Array] = {}
    faults: list[Fault] = []
    for group, rows in problem.rows():
        truth = problem.layer(group).truth()
        reference[rows] = truth.reference
        for name, wrong in (*truth.mutants.items(), *_wrong(problem, group)):
            mutants.setdefault(name, np.zeros(shape))[rows] = wrong
        for fault in truth.faults:
            faults.append(replace(fault, name=f"{fault.name} in group {group}", rows=rows[fault.rows]))
    return Truth(reference, mutants, faults)


def _wrong(problem: Grouped, group: int) -> Iterator[tuple[str, Array]]:
    """Yield the outputs of kernels that take the wrong weight or the wrong scales for a group's tokens."""

    activations = problem.activations(group)
    weight = problem.weight(group).values().T
    following = problem.weight((group + 1) % len(problem.groups)).values().T
    yield "the next group's weight", activations.values() @ following
    yield "activations' scales shifted by a block", activations.scales_shifted().values() @ weight
