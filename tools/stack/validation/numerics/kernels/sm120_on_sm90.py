# SPDX-License-Identifier: Apache-2.0
"""Declare FlashInfer's grouped MXFP8 x MXFP4 kernels for SM120 as the laboratory runs them on SM90.

The laboratory (`kernels/laboratory/sm120_on_sm90` of the stack) compiles them, and is imported when a kernel runs.
"""

import os
from functools import partial
from pathlib import Path

import numpy.typing as npt

from stack.validation.numerics import SM120_ON_SM90
from stack.validation.numerics.grouped import Grouped
from stack.validation.numerics.kernels import Kernel
from stack.validation.numerics.kernels.environment import gpu
from stack.validation.numerics.tiles import TILES, Tile


def grouped(tile: Tile, problem: Grouped) -> npt.ArrayLike:
    """Compute the grouped GEMM with one tile."""
    from laboratory.sm120_on_sm90 import grouped as on_sm90  # noqa: PLC0415

    return on_sm90.grouped(tile, problem)


def lacks() -> str:
    """Return why the kernels cannot run on this machine; empty if they can."""
    if lacking := gpu("sm90"):
        return lacking
    named = os.environ.get(SM120_ON_SM90, "")
    return "" if Path(named).is_file() else named or "they were not compiled: `stack validate kernels --emulate sm120`"


GROUPED = tuple(Kernel(f"sm120-on-sm90-{tile.name}", ("sm90",), lacks, partial(grouped, tile)) for tile in TILES)
