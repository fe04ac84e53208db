# SPDX-License-Identifier: Apache-2.0
"""Judges of FlashInfer's MXFP4 decode kernels on the emulated machine: each returns what is wrong with them, or nothing."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pytest

from laboratory import mxfp4
from laboratory.emulated import SHARED_LIMIT, KernelFault, Machine
from laboratory.mxfp4 import both, decoded, every_number, multiplied, quantized, reference
from stack.validation.numerics.blocks import Rounding
from stack.validation.numerics.cases import BFLOAT16_BAR
from stack.validation.numerics.experts import Experts, Glu, Sizes
from stack.validation.numerics.judging import Truth, judge, measure, reordered, wrongly_padded
from stack.validation.numerics.linear import Linear

MOE, ENTRIES, ROUTE, CHOOSE = "moe_decode.cuh", "moe_rows.cuh", "moe_routing.cuh", "choose.cuh"
GEMV, QUANTIZE = "gemv.cuh", "quantize.cuh"
ROWS, PRODUCTS = "row_stream.cuh", "row_products.cuh"
RING, BYTES, FIXED = "weight_ring.cuh", "byte_products.cuh", "fixed_point.cuh"
STREAM, BF16, MATRIX = "weight_stream.cuh", "bf16_products.cuh", "matrix.cuh"
"""The headers of the kernels."""

EXPERTS = Experts(4, experts=4, hidden=96, intermediate=160, elsewhere=1)
WIDE = (128, 288)
CROWDED = Experts(16, experts=4, hidden=96, intermediate=96, twice=True)
FEW_CROWDED = Experts(4, experts=4, hidden=96, intermediate=96, twice=True)
DEEP = tuple(
    Experts(tokens, experts=4, hidden=hidden, intermediate=intermediate)
    for tokens in (2, 5)
    for hidden, intermediate in ((2880, 32), (32, 2880))
)
MANY = Experts(14, experts=3, hidden=2880, intermediate=32, top=2)
"""More tokens than fit into the shared memory of a Spark at once: the first launch takes them in parts."""
ONE_LEFT = replace(MANY, tokens=11)
ONE, FEW, WHOLE, IN_PARTS = "Shape<1, 1, false>", "Shape<4, 4, false>", "Shape<16, 8, false>", "Shape<16, 8, true>"
"""Template arguments of the kernels: one token, up to four, up to sixteen, and up to sixteen in parts (first launch only)."""
ALL_ENTRIES = Experts(16, experts=10, hidden=64, intermediate=32, top=8)
OTHERWISE = Experts(3, experts=4, hidden=64, intermediate=64, glu=Glu(alpha=1.2, beta=0.5, limit=3.0))
"""Another activation than that of gpt-oss."""
UNEVEN = Experts(5, experts=9, hidden=64, intermediate=288, top=8, seed=9)
"""In its second launch warps have two or three slices of groups of three."""
ALONE = Experts(1, experts=160, hidden=64, intermediate=32)
ALL_CHOICES = Experts(1, experts=10, hidden=64, intermediate=32, top=8)
LONG = tuple(
    Experts(1, experts=4, hidden=hidden, intermediate=intermediate) for hidden, intermediate in ((3200, 32), (32, 3200))
)
"""One token with more columns than a warp has registers for."""
FEW_LONG = tuple(
    Experts(2, experts=12, hidden=hidden, intermediate=intermediate, top=2) for hidden, intermediate in ((3232, 64), (64, 3232))
)
"""Two tokens with more columns than a warp has registers for."""
MIXED = Experts(6, experts=24, hidden=224, intermediate=160, top=2)
"""Some entries share an expert, others do not. Tiles of scales are half full, in rows and in columns."""
FEW_MIXED = replace(MIXED, tokens=3, experts=6)
FEW_HALVES = replace(FEW_MIXED, top=3)
"""In its second launch some warps have one slice more than others."""
TWICE = Experts(1, experts=6, hidden=96, intermediate=96, twice=True)
"""One token that has an expert twice."""
STRANGERS = Experts(3, experts=5, hidden=64, intermediate=64, top=2)
"""Its judge replaces some ids by ids without an expert."""
OF_MANY = Experts(5, experts=300, hidden=64, intermediate=32, top=8, elsewhere=40)
ROOMY = Experts(16, experts=20, hidden=2880, intermediate=160, top=8)
H200_SHARED = 232_448
"""Bytes of shared memory of a block on an H200: rings for the largest number of warps fit beside all tokens."""
LAYER = Linear(9, 5152, 56, "mxfp4")
BROAD = Linear(9, 1312, 244, "mxfp4")
NARROW = Linear(9, 160, 56, "mxfp4")
MANY_ROWS = Linear(1, 512, 1100, "mxfp4")
SHAPES = (
    (LAYER, 48),  # blocks of 16 rows
    (BROAD, 4),  # 32 rows
    (BROAD, 1),  # 32 rows and few warps
    (NARROW, 48),  # columns for two warps only
    (MANY_ROWS, 1),  # one token and many rows: a block for each multiprocessor
    (Linear(1, 2880, 1100, "mxfp4"), 1),  # fewer warps, because not all rings fit
    (Linear(1, 3104, 1100, "mxfp4"), 1),  # more columns than a warp has registers for
    (Linear(2, 512, 1100, "mxfp4"), 1),  # two tokens: no wide kernel
)
"""Layers with the number of multiprocessors, which decides the shape of blocks."""


def refused(run: Callable[[], object]) -> str:
    """Return a judge's answer, or the error that the machine raised."""
    try:
        return str(run())
    except (KernelFault, RuntimeError) as fault:
        return str(fault)


@cache
def truth(layer: Experts | Linear) -> Truth:
    return layer.truth()


def experts_judged(machine: Machine) -> str:
    few = judge(decoded(machine, EXPERTS, WIDE), truth(EXPERTS), BFLOAT16_BAR).why
    found = (as_stored(machine, layer) for layer in (CROWDED, FEW_CROWDED, ALL_ENTRIES, UNEVEN, ALONE, OTHERWISE))
    return few or next(filter(None, found), "")


def mixed_judged(machine: Machine) -> str:
    """Judge layers where some entries share an expert and others do not."""
    return next(filter(None, (as_stored(machine, layer) for layer in (TWICE, FEW_MIXED, FEW_HALVES, MIXED, *FEW_LONG))), "")


@cache
def tied() -> Experts:
    """Make a layer with ties among negative logits, where the lower index wins. The first token has zeros of both signs."""
    layer = Experts(5, experts=160, hidden=64, intermediate=32, elsewhere=1)
    layer.logits[:] = np.round(layer.logits * 2) / 2 - 8
    layer.logits[0] = np.where(layer.logits[0] > -8, -0.0, 0.0)
    return layer


def choices_judged(machine: Machine) -> str:
    """Judge experts that the kernels choose by the router's logits."""
    layers = (EXPERTS, ALONE, OF_MANY, tied())
    found = (
        judge(decoded(machine, one, (one.hidden, one.intermediate), chooses=True), truth(one), BFLOAT16_BAR).why
        for one in layers
    )
    if said := next(filter(None, found), ""):
        return said
    return padding_judged(machine, EXPERTS) or ("" if spoils(machine, -np.nan) else "a NaN is not chosen")


def padding_of(layer: Experts) -> npt.NDArray[np.bool_]:
    rows: npt.NDArray[np.bool_] = np.arange(layer.tokens) % 4 == 1
    return rows


def padding_judged(machine: Machine, layer: Experts) -> str:
    """Judge padding tokens: their output is zero, and the other tokens' output does not depend on them."""
    padding = padding_of(layer)
    sizes = (layer.hidden, layer.intermediate)
    others = replace(layer)
    others.inputs[padding] = np.nan
    others.logits[padding] *= -1
    found, same = (decoded(machine, one, sizes, chooses=True, padding=padding) for one in (layer, others))
    whole = decoded(machine, layer, sizes, chooses=True)
    return wrongly_padded(found, same, whole, padding)


def unread_judged(machine: Machine) -> str:
    """Judge that experts chosen only by padding tokens are not read: their weights are missing."""
    layer = replace(EXPERTS, experts=8, elsewhere=0)
    padding = padding_of(layer)
    layer.logits[padding, 4:] -= 32
    layer.logits[~padding, :4] -= 32
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mxfp4, "stored", partial(_without_the_first_four, mxfp4.stored))
        decoded(machine, layer, (layer.hidden, layer.intermediate), chooses=True, padding=padding)
    return ""


def _without_the_first_four(stored: Callable[[Experts, Sizes], mxfp4.Stored], layer: Experts, sizes: Sizes) -> mxfp4.Stored:
    weights = stored(layer, sizes)
    assert weights.places[:4].min() == 4
    parts = ("up", "up_scales", "up_bias", "down", "down_scales", "down_bias")
    return replace(weights, **{name: getattr(weights, name)[:4] for name in parts})


def spoils(machine: Machine, logit: float) -> bool:
    """Whether this logit makes its own token NaN and leaves the others unchanged."""
    bad, good = replace(EXPERTS, experts=9), replace(EXPERTS, experts=9)
    bad.logits[2, 7] = logit
    found, whole = (decoded(machine, one, (96, 160), chooses=True) for one in (bad, good))
    return bool(np.isnan(found[2]).all()) and reordered(np.delete(found, 2, axis=0), np.delete(whole, 2, axis=0))


def no_numbers_judged(machine: Machine) -> str:
    """Judge NaN and infinity: they spoil their own token alone, and a NaN scale passes through the activation's limit."""
    good = decoded(machine, CROWDED, (96, 96))
    for number in (np.nan, np.inf):
        spoiled = replace(CROWDED)
        spoiled.inputs[5, 7] = number
        found = decoded(machine, spoiled, (96, 96))
        if not np.isnan(found[5]).all():
            return f"{number} is lost"
        if not np.array_equal(np.delete(found, 5, axis=0), np.delete(good, 5, axis=0)):
            return f"{number} changes other tokens"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mxfp4, "stored", partial(_without_a_scale, mxfp4.stored))
        for layer in (replace(EXPERTS, elsewhere=0), ALONE):
            if not np.isnan(decoded(machine, layer, (layer.hidden, layer.intermediate))).all():
                return "a scale that is none is lost"
    return ""


def _without_a_scale(stored: Callable[[Experts, Sizes], mxfp4.Stored], layer: Experts, sizes: Sizes) -> mxfp4.Stored:
    weights = stored(layer, sizes)
    weights.up_scales[:, 0] = 255  # of the first block of up's first row
    return weights


def strangers_judged(machine: Machine) -> str:
    """Judge ids without an expert, with and without a map: they add nothing, so the single choices sum up to the whole."""
    for layer in (replace(STRANGERS, elsewhere=1), STRANGERS):
        sizes = (layer.hidden, layer.intermediate)
        whole = Truth(decoded(machine, layer, sizes).astype(np.float64), {})
        for strange in (-1, -(2**31), layer.experts, 2**30):
            parts = [decoded(machine, layer, sizes, instead=(choice, strange)) for choice in range(layer.top)]
            if not measure(sum(parts), whole).rel_l2 <= BFLOAT16_BAR:
                return f"id {strange} adds something"
    return ""


def one_judged(machine: Machine) -> str:
    """Judge one token: padded weights, more columns than registers, all eight choices, and chosen experts."""
    few = replace(EXPERTS, tokens=1)
    found = judge(decoded(machine, few, WIDE), truth(few), BFLOAT16_BAR).why
    said = found or next(filter(None, (as_stored(machine, layer) for layer in (ALONE, ALL_CHOICES, *LONG))), "")
    return said or judge(decoded(machine, ALONE, (96, 64), chooses=True), truth(ALONE), BFLOAT16_BAR).why


def columns_judged(machine: Machine) -> str:
    """Judge experts with more columns than fit into a ring."""
    return next(filter(None, (as_stored(machine, layer) for layer in DEEP)), "")


def many_judged(machine: Machine) -> str:
    """Judge more tokens than fit at once, also with a last part of one token."""
    sizes = (MANY.hidden, MANY.intermediate)
    found = (
        judge(decoded(machine, layer, sizes, chooses=chooses), truth(layer), BFLOAT16_BAR).why
        for layer in (MANY, ONE_LEFT)
        for chooses in (False, True)
    )
    return next(filter(None, found), "") or padding_judged(machine, MANY)


def kernels_of(machine: Machine, layer: Experts) -> tuple[str, ...]:
    decoded(machine, layer, (layer.hidden, layer.intermediate))
    return machine.kernels


def shapes_judged(machine: Machine) -> str:
    """Judge that each number of tokens runs the kernels made for it: others would be correct, but slower.

    Part by part, which reads an expert for each part, only where tokens have no room at a time.
    """
    for tokens, shape in ((1, ONE), (2, FEW), (4, FEW), (5, WHOLE), (10, WHOLE)):
        for kernel in kernels_of(machine, replace(ONE_LEFT, tokens=tokens)):
            if shape not in kernel:
                return f"another shape: {tokens} tokens by {kernel}"
    return ""


def roomy_judged(machine: Machine) -> str:
    """Judge with the shared memory of an H200."""
    found = decoded(machine, ROOMY, (ROOMY.hidden, ROOMY.intermediate), shared_limit=H200_SHARED)
    assert machine.shared > SHARED_LIMIT
    return judge(found, truth(ROOMY), BFLOAT16_BAR).why


def as_stored(machine: Machine, layer: Experts) -> str:
    return judge(decoded(machine, layer, (layer.hidden, layer.intermediate)), truth(layer), BFLOAT16_BAR).why


def layer_judged(machine: Machine) -> str:
    found = (judge(multiplied(machine, layer, processors), truth(layer), BFLOAT16_BAR).why for layer, processors in SHAPES)
    return (
        next(filter(None, found), "") or judge(multiplied(machine, MANY_ROWS, 1, beyond=1), truth(MANY_ROWS), BFLOAT16_BAR).why
    )


@cache
def numbers_and_codes(rounding: Rounding) -> tuple[np.ndarray, np.ndarray]:
    bits = every_number()
    return bits, both(reference(bits, rounding))


def quantizer_judged(machine: Machine) -> str:
    return codes_judged(machine, Rounding.FLOOR) or codes_judged(machine, Rounding.EVEN)


def codes_judged(machine: Machine, rounding: Rounding) -> str:
    bits, codes = numbers_and_codes(rounding)
    differing = np.count_nonzero(both(quantized(machine, bits, rounding)) != codes)
    return f"{differing} differ" if differing else ""


OF_EXPERTS = (
    experts_judged,
    choices_judged,
    mixed_judged,
    one_judged,
    columns_judged,
    many_judged,
    shapes_judged,
    unread_judged,
    strangers_judged,
    no_numbers_judged,
    roomy_judged,
)
# For each header the judge that refuses most of its faults comes first; the others follow by their run time.
JUDGES = {
    MOE: (experts_judged, many_judged, shapes_judged, mixed_judged, choices_judged, columns_judged, roomy_judged),
    ENTRIES: (experts_judged, no_numbers_judged, choices_judged, mixed_judged, one_judged, many_judged, roomy_judged),
    ROUTE: (experts_judged, unread_judged, no_numbers_judged, choices_judged, strangers_judged, mixed_judged, many_judged),
    CHOOSE: (choices_judged,),
    RING: (experts_judged, choices_judged, mixed_judged, columns_judged),
    BYTES: (experts_judged, no_numbers_judged, columns_judged, mixed_judged),
    FIXED: (experts_judged, no_numbers_judged, columns_judged, mixed_judged),
    MATRIX: (experts_judged, columns_judged, mixed_judged),
    ROWS: (experts_judged, layer_judged, mixed_judged, one_judged),
    PRODUCTS: (experts_judged, layer_judged, mixed_judged, one_judged),
    GEMV: (layer_judged,),
    STREAM: (layer_judged,),
    BF16: (layer_judged,),
    QUANTIZE: (quantizer_judged,),
}
