# SPDX-License-Identifier: Apache-2.0
"""Judge an output by bounds. A bound counts only if it has rejected the wrong outputs that it is meant to reject.

There are two measures, both against a reference in float64 on the same quantized inputs.

`rel_l2` is ||out - ref|| / ||ref|| of the worst row (a token). Over the whole output, a fault of few rows, or of rows with small
values, would be lost among the others.

`lean` is for faults that are smaller than a row's rounding errors, such as one wrong block of weights out of a quarter of a million.
The change d that such a fault makes to the output is known. <out - ref, d> / <d, d> is the share of it that is present: 1 with the
fault, near 0 without, because rounding errors do not point along d. The bound is a half.

A kernel that should lose only what its formats lose is compared with an ideal kernel (`beside_ideal`). The bar is slightly above the
ideal kernel's `rel_l2`, and must also reject kernels that round once more than needed.

Where the reference is NaN, an output has to be NaN or infinite, and nowhere else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.formats import Array

LEAN_BAR = 0.5
BFLOAT16 = 2.0**-9
"""Largest relative error of rounding to bfloat16."""
REORDERED_BAR = 1e-3
"""Largest `rel_l2` between two bfloat16 outputs that differ only in the order of summation. 2e-4 was measured. An ideal kernel is 1.7e-3
from the reference, and a token with a wrong expert is more than a hundred times this bar away."""
Rows = npt.NDArray[np.intp]
Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """The change of the output by one small fault: `delta` [rows, columns], at these rows and columns."""

    name: str
    rows: Rows
    columns: slice
    delta: Array

    def applied(self, output: Array) -> Array:
        """Return a copy of an output with the fault added."""
        wrong = output.copy()
        wrong[self.rows, self.columns] += self.delta
        return wrong

    def lean(self, error: Array) -> float:
        """Compute the share of the fault in an error."""
        here = error[self.rows, self.columns]
        size = float(np.vdot(self.delta, self.delta))
        return abs(float(np.vdot(here, self.delta))) / size if size else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A reference [rows, columns], one row per token, and wrong outputs that must be distinguished from it."""

    reference: Array
    mutants: Mapping[str, Array]
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """The output of an ideal kernel, which rounds only where its formats do, and of kernels that round once more."""

    ideal: Array
    coarser: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Measured:
    """Distances of an output from the reference; the module explains them."""

    rel_l2: float
    lean: float
    overall: float
    """rel-L2 over all rows, as other projects report it."""

    def excess(self, bar: float) -> float:
        """Divide the distance by the allowed one; up to 1 is accepted."""
        return max(self.rel_l2 / bar, self.lean / LEAN_BAR)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The result for an output and the mutants: for each, its distance divided by the allowed one."""

    good: Measured
    excess: float
    mutants: Mapping[str, float]
    passed_through: tuple[str, ...] = field(default=())

    @property
    def nearest(self) -> tuple[str, float]:
        """The mutant that is nearest to being accepted."""
        return min(self.mutants.items(), key=lambda item: item[1])

    @property
    def why(self) -> str:
        """The problems, joined; empty if there are none."""
        wrong = []
        if not self.excess <= 1:
            wrong.append(f"the output is {self.excess:.3g} times as far from the reference as allowed")
        if self.passed_through:
            wrong.append(f"the bar proves nothing, it accepts wrong outputs: {', '.join(self.passed_through)}")
        return "; ".join(wrong)


def measure(output: npt.ArrayLike, truth: Truth) -> Measured:
    """Measure how far an output is from the reference; infinite for another shape, or if it is finite where the reference is not."""
    given = np.asarray(output, np.float64)
    finite = np.isfinite(truth.reference)
    if given.shape != truth.reference.shape or not np.array_equal(np.isfinite(given), finite):
        return Measured(np.inf, np.inf, np.inf)
    reference = np.where(finite, truth.reference, 0.0)
    error = np.where(finite, given, 0.0) - reference
    worst = max(_relative(*rows) for rows in zip(error, reference, strict=True))
    lean = max((fault.lean(error) for fault in truth.faults), default=0.0)
    return Measured(worst, lean, _relative(error, reference))


def judge(output: npt.ArrayLike, truth: Truth, bar: float) -> Judgement:
    """Compare the output with the bar, and check that the bar rejects every mutant."""
    good = measure(output, truth)
    wrong = {name: measure(mutant, truth).excess(bar) for name, mutant in _wrong(truth)}
    through = tuple(name for name, excess in wrong.items() if not excess > 1)
    return Judgement(good, good.excess(bar), wrong, through)


def reordered(output: npt.ArrayLike, other: npt.ArrayLike) -> bool:
    """Return whether two outputs [rows, columns] differ only as much as another order of summation allows."""
    return measure(output, Truth(np.asarray(other, np.float64), {})).rel_l2 <= REORDERED_BAR


def wrongly_padded(found: Outputs, other: Outputs, whole: Outputs, padding: npt.NDArray[np.bool_]) -> str:
    """Say why the outputs [tokens, columns] of a batch with `padding` are wrong; empty if they are right.

    `other` is the output with other numbers in the padding. `whole` is the output without padding. There, a token may share an expert
    that it otherwise has for itself, so its products are summed in another order.
    """
    if found[padding].any():
        return "padding is not zeros"
    if not np.array_equal(found, other):
        return "other tokens change with the content of the padding"
    return "" if reordered(found[~padding], whole[~padding]) else "other tokens are not as without padding"


def beside_ideal(truth: Truth, rounded: Rounded, times: float) -> tuple[Truth, float]:
    """Add the coarser kernels to the truth's mutants; return it with the bar, `times` the ideal kernel's rel-L2.

    If the ideal kernel is exact, the bar is `times` the rounding of bfloat16.
    """
    return replace(truth, mutants={**truth.mutants, **rounded.coarser}), times * (
        measure(rounded.ideal, truth).rel_l2 or BFLOAT16
    )


def _wrong(truth: Truth) -> Iterable[tuple[str, Array]]:
    """Yield the wrong outputs one at a time, because they are large."""
    reference = truth.reference
    yield "zeros", np.zeros_like(reference)
    noise = np.random.default_rng(0).standard_normal(reference.shape)
    yield "noise of the same spread", noise * np.where(np.isfinite(reference), reference, 0).std(axis=1, keepdims=True)
    yield from truth.mutants.items()
    for fault in truth.faults:
        yield fault.name, fault.applied(reference)


def _relative(error: Array, reference: Array) -> float:
    size = float(np.linalg.norm(reference))
    wrong = float(np.linalg.norm(error))
    return wrong / size if size else (np.inf if wrong else 0.0)
