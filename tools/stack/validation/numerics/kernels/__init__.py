# SPDX-License-Identifier: Apache-2.0
"""Kernels under test: each says what machine it needs, why it cannot run on this one, and computes a problem's output.

torch, vLLM, FlashInfer and the others are imported when a kernel is asked, never before: what is missing is a reason, not an error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy.typing as npt

Problem = TypeVar("Problem")


@dataclass(frozen=True, slots=True)
class Kernel(Generic[Problem]):
    """`needs`: what a machine must have (`cpu`, `avx512_bf16`, `sm90`, `sm121`, …); where it has one of `sm…`, that is enough.

    `lacks` says why it cannot run here, or nothing. `run` computes the output [tokens, …] of a problem, in at most `seconds`: what is
    compiled when it is first used needs many.
    """

    name: str
    needs: tuple[str, ...]
    lacks: Callable[[], str]
    run: Callable[[Problem], npt.ArrayLike]
    seconds: float = 600.0
