# SPDX-License-Identifier: Apache-2.0
"""Kernels under test: each states the machine it needs, and why it cannot run on this one, and computes a problem's output.

torch, vLLM, FlashInfer and other packages are imported only when a kernel is used: a missing one is a reason, not an error.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy.typing as npt

Problem = TypeVar("Problem")


@dataclass(frozen=True, slots=True)
class Kernel(Generic[Problem]):
    """`needs`: features that a machine must have (`cpu`, `avx512_bf16`, `sm90`, `sm121`, …); of several `sm…`, one is enough.

    `lacks` returns why the kernel cannot run on this machine; empty if it can. `run` computes the output [tokens, …] of a problem in at
    most `seconds`; a kernel that is compiled on first use takes long.
    """

    name: str
    needs: tuple[str, ...]
    lacks: Callable[[], str]
    run: Callable[[Problem], npt.ArrayLike]
    seconds: float = 600.0
