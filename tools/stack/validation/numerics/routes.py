# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts whose routing is at the ends of what the decode kernels promise: logits, ids, padding, very many experts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.experts import Experts, Ids, Routed
from stack.validation.numerics.formats import Single, bfloat16
from stack.validation.numerics.ranges import plain

WEIGHTS = 10**6 + 1
"""What is drawn for router weights: no number of an expert."""


@dataclass(frozen=True)
class Decided(Experts):
    """Logits of 200 and -200, equal ones, and zeros of both signs."""

    @cached_property
    def logits(self) -> Single:
        """Router logits; a pattern for each token."""
        normal = bfloat16(self._draw(-2).standard_normal((self.tokens, self.experts)))
        signs = np.where(normal > 0, np.float32(200), np.float32(-200))
        few = np.full_like(normal, -200)
        few[:, self.experts // 2 : self.experts // 2 + self.top - 1] = 200
        one = normal.copy()
        one[:, -1] = 200
        zeros = np.where(normal > 0, np.float32(0), np.float32(-0.0))
        patterns = (signs, np.full_like(normal, 200), few, one, np.full_like(normal, -200), zeros, normal * 100)
        return np.stack([bfloat16(patterns[(token + self.seed) % len(patterns)][token]) for token in range(self.tokens)])


@dataclass(frozen=True)
class Unknown(Experts):
    """Ids that no expert has: negative ones, the number of experts, the largest that a kernel can be given. They add nothing."""

    @cached_property
    def route(self) -> tuple[Ids, Single]:
        """Experts, every token with one id that is unknown."""
        ids, weights = plain(self).route[0].copy(), plain(self).route[1]
        unknown = (-1, self.experts, -(2**31), 2**30, 2**31 - 1)
        for token in range(self.tokens):
            ids[token, token % self.top] = unknown[token % len(unknown)]
        return ids, weights


@dataclass(frozen=True)
class Weighted(Experts):
    """Router weights that no softmax gives: negative ones, some above 1, and their sum is another for each token."""

    @cached_property
    def route(self) -> tuple[Ids, Single]:
        """Experts, and weights of both signs."""
        ids, weights = plain(self).route
        return ids, (3 * self._draw(WEIGHTS).standard_normal(weights.shape)).astype(np.float32)


@dataclass(frozen=True)
class Padded(Experts):
    """Every third token is padding: its input is NaN, its logits are others', and its output is zero."""

    @property
    def padding(self) -> npt.NDArray[np.uint8]:
        """Marks of the tokens: zero, or another byte for padding."""
        tokens = np.arange(self.tokens)
        return np.where(tokens % 3 == 1, 255 - tokens, 0).astype(np.uint8)

    @cached_property
    def inputs(self) -> Single:
        """Tokens, with NaN for padding."""
        numbers = bfloat16(self._draw(-1).standard_normal((self.tokens, self.hidden)))
        return np.where(self.padding[:, None] != 0, np.float32(np.nan), numbers)

    def routed(self) -> Iterator[Routed]:
        """Yield every expert that has tokens which are not padding."""
        for part in Experts.routed(self):
            kept = self.padding[part.rows] == 0
            if kept.any():
                yield Routed(part.expert, part.rows[kept], part.weights[kept])


@dataclass(frozen=True)
class Many(Experts):
    """So many experts that their weights have more than 2^32 bytes; only a few of them are ever read, so a sparse memory holds them."""

    @cached_property
    def logits(self) -> Single:
        """Router logits that choose the first, the last and some between."""
        logits = np.full((self.tokens, self.experts), -8, np.float32)
        every = np.linspace(0, self.experts - 1, self.tokens * self.top).astype(np.intp)
        for token in range(self.tokens):
            logits[token, every[token :: self.tokens]] = bfloat16(self._draw(-2).standard_normal(self.top))
        return logits
