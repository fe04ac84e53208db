# SPDX-License-Identifier: Apache-2.0
"""Declare FlashInfer's MXFP4 decode kernels as the laboratory runs them on a CPU, thread by thread.

The laboratory (`kernels/laboratory/mxfp4.py` of the stack) is imported when a kernel runs: a judge of verdicts needs the names only.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy.typing as npt

from stack.validation.numerics import EMULATED
from stack.validation.numerics.agreement import Agreement, Compared
from stack.validation.numerics.blocks import Rounding
from stack.validation.numerics.experts import Experts, Sizes
from stack.validation.numerics.kernels import Kernel
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.routes import Padded

PROCESSORS = 48
"""Multiprocessors of a GB10: the dense kernel chooses the shape of its blocks by their number."""


def lacks() -> str:
    """Return why the kernels cannot run on this machine; empty if they can."""
    named = os.environ.get(EMULATED, "")
    if not named:
        return f"{EMULATED} names no library: stack validate kernels builds one"
    return "" if Path(named).is_file() else named


def experts(layer: Experts, stored_as: Sizes | None = None, *, chooses: bool = False) -> npt.ArrayLike:
    """Run FlashInfer's mixture of experts for few tokens, on weights laid out for vLLM's CUTLASS kernels: [tokens, hidden].

    `stored_as`: hidden and intermediate size of the stored weights, if larger than the layer's. `chooses`: the kernels select the
    experts from the router's logits.
    """
    from laboratory import mxfp4  # noqa: PLC0415

    padding = layer.padding if isinstance(layer, Padded) else None
    sizes = stored_as or (layer.hidden, layer.intermediate)
    return mxfp4.decoded(mxfp4.machine(), layer, sizes, chooses=chooses, padding=padding)


def dense(layer: Linear, processors: int = PROCESSORS) -> npt.ArrayLike:
    """Run FlashInfer's dense layer for few tokens, on a weight laid out as in a checkpoint: [tokens, outputs].

    `processors`: multiprocessors. With few of them a single token takes another kernel, for many rows.
    """
    from laboratory import mxfp4  # noqa: PLC0415

    return mxfp4.multiplied(mxfp4.machine(), layer, processors)


def _quantizes(rounding: Rounding) -> Compared:
    from laboratory import mxfp4  # noqa: PLC0415

    return mxfp4.quantizes(rounding)


def _dequantizes() -> Compared:
    from laboratory import mxfp4  # noqa: PLC0415

    return mxfp4.dequantizes()


def agreements() -> Iterator[Agreement]:
    """List the bitwise comparisons of the quantizer with our formats."""
    for rounding in (Rounding.FLOOR, Rounding.EVEN):
        yield Agreement(f"mxfp4-emulated/quantize-{rounding}", "", partial(_quantizes, rounding), lacks)
    yield Agreement("mxfp4-emulated/dequantize", "", _dequantizes, lacks)


def wide(hidden: int, intermediate: int) -> Kernel[Experts]:
    """Make the experts' kernel with weights stored in these sizes."""
    return replace(EXPERTS, run=partial(experts, stored_as=(hidden, intermediate)))


EXPERTS: Kernel[Experts] = Kernel("mxfp4-decode-emulated", ("cpu",), lacks, experts)
CHOOSING: Kernel[Experts] = Kernel("mxfp4-decode-choosing-emulated", ("cpu",), lacks, partial(experts, chooses=True))
DENSE: Kernel[Linear] = Kernel("mxfp4-gemv-emulated", ("cpu",), lacks, dense)
MANY_ROWS: Kernel[Linear] = replace(DENSE, run=partial(dense, processors=1))
"""Where each multiprocessor has many rows, the kernel for a single token multiplies in fixed point."""
