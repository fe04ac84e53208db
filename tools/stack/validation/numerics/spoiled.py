# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts with NaN and infinity: each spoils what it is a factor of, and nothing else."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.blocks import MXFP4, Blocks
from stack.validation.numerics.experts import Expert, Experts, Ids
from stack.validation.numerics.formats import E8M0_NAN, Single
from stack.validation.numerics.judging import Rounded, Truth
from stack.validation.numerics.ranges import plain


class Spoiler(StrEnum):
    """A number that is none, and where it is."""

    INPUT = "input"
    INFINITE_INPUT = "infinite-input"
    FIRST_SCALE = "first-scale"
    SECOND_SCALE = "second-scale"
    WEIGHT = "weight"


@dataclass(frozen=True)
class Spoiled(Experts):
    """NaN and infinity. Each makes what it is a factor of NaN or infinite, and nothing else.

    The first token that has it is number 0, the next number 1, in the order of `spoilers`. A scale is that of its token's first expert.
    """

    spoilers: tuple[Spoiler, ...] = tuple(Spoiler)

    @cached_property
    def _whole(self) -> Experts:
        return plain(self)

    @cached_property
    def inputs(self) -> Single:
        """Tokens, some with a NaN or an infinity."""
        numbers = self._whole.inputs.copy()
        for token, spoiler in enumerate(self.spoilers):
            if spoiler in (Spoiler.INPUT, Spoiler.INFINITE_INPUT):
                numbers[token, 9] = np.nan if spoiler is Spoiler.INPUT else -np.inf
        return numbers

    @cached_property
    def route(self) -> tuple[Ids, Single]:
        """Experts and router weights, one of which may be NaN."""
        ids, weights = self._whole.route[0], self._whole.route[1].copy()
        weights[[token for token, spoiler in enumerate(self.spoilers) if spoiler is Spoiler.WEIGHT], 0] = np.nan
        return ids, weights

    def expert(self, number: int) -> Expert:
        """Draw an expert; a NaN is the scale of a row's last block."""
        expert = Experts.expert(self, number)
        first, second = expert.gate_up.scales.copy(), expert.down.scales.copy()
        for token, spoiler in enumerate(self.spoilers):
            if number == self._whole.route[0][token, 0]:
                first[1, -1] = E8M0_NAN if spoiler is Spoiler.FIRST_SCALE else first[1, -1]
                second[5, -1] = E8M0_NAN if spoiler is Spoiler.SECOND_SCALE else second[5, -1]
        gate_up, down = Blocks(MXFP4, expert.gate_up.codes, first), Blocks(MXFP4, expert.down.codes, second)
        return Expert(gate_up, expert.gate_up_bias, down, expert.down_bias)

    def truth(self) -> Truth:
        """Compute the output, NaN where it has to be, and outputs in which they are lost or spread."""
        reference = np.where(self._spoiled(), np.nan, self._whole.truth().reference)
        lost, everywhere = np.where(np.isnan(reference), 1.0, reference), np.full_like(reference, np.nan)
        wrong = {"NaN lost": lost} | ({} if np.isnan(reference).all() else {"NaN everywhere": everywhere})
        return Truth(reference, wrong)

    def rounded(self, truth: Truth) -> Rounded:
        """Compute the output of a kernel in the decode kernels' format."""
        ideal = self._whole.rounded(truth).ideal
        return Rounded(np.where(self._spoiled(), np.nan, ideal), {})

    def _spoiled(self) -> npt.NDArray[np.bool_]:
        found = np.zeros((self.tokens, self.hidden), np.bool_)
        ids = self._whole.route[0]
        for token, spoiler in enumerate(self.spoilers):
            of_expert = (ids == ids[token, 0]).any(axis=1)
            if spoiler in (Spoiler.INPUT, Spoiler.INFINITE_INPUT, Spoiler.WEIGHT):
                found[token] = True
            elif spoiler is Spoiler.FIRST_SCALE:
                found[of_expert] = True
            else:
                found[of_expert, 5] = True
        return found
