# SPDX-License-Identifier: Apache-2.0
"""What decides about an output: bounds that are worth nothing until they have rejected the wrong outputs that they are for.

Two measures, both against a reference in float64 on the same quantized inputs:

`rel_l2` is ||out - ref|| / ||ref|| of the worst row (a token), not of everything: a fault of few rows, or of rows with small values,
would drown in the others.

`lean` is for faults that drown in the rounding of a row, too, such as one block of weights out of a quarter of a million. What such
a fault adds to the output is known, d, and <out - ref, d> / <d, d> says how much of it is there: 1 with the fault, near 0 without,
since rounding has no reason to point along d. The bound is a half.

A kernel that loses nothing but what its output's format takes is held against one that is ideal (`beside_ideal`): the bar is that
one's `rel_l2` times a little, and has to reject kernels that round once more than needed, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.formats import Array

LEAN_BAR = 0.5
REORDERED_BAR = 1e-3
"""How far apart two outputs in bfloat16 may be, as `rel_l2`, that add up the same numbers in another order: 2e-4 was measured, an ideal
kernel is 1.7e-3 from the reference, and one expert of a token that is another's is beyond a hundred times this."""
Rows = npt.NDArray[np.intp]
Outputs = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """What one small fault adds to the output, where it does: `delta` [rows, columns] at these rows and columns."""

    name: str
    rows: Rows
    columns: slice
    delta: Array

    def applied(self, output: Array) -> Array:
        """An output with the fault in it."""
        wrong = output.copy()
        wrong[self.rows, self.columns] += self.delta
        return wrong

    def lean(self, error: Array) -> float:
        """How much of the fault is in an error."""
        here = error[self.rows, self.columns]
        size = float(np.vdot(self.delta, self.delta))
        return abs(float(np.vdot(here, self.delta))) / size if size else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """A reference [rows, columns], a row a token, and outputs that have to be told from it."""

    reference: Array
    mutants: Mapping[str, Array]
    faults: Sequence[Fault] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rounded:
    """The output of an ideal kernel, which rounds where it has to, and of kernels that round once more."""

    ideal: Array
    coarser: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Measured:
    """How far an output is from the reference: see the module."""

    rel_l2: float
    lean: float
    overall: float
    """rel-L2 of everything: what others report."""

    def excess(self, bar: float) -> float:
        """How many times as far as allowed; accepted up to 1."""
        return max(self.rel_l2 / bar, self.lean / LEAN_BAR)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of an output and of the mutants: by name how many times as far as allowed each was."""

    good: Measured
    excess: float
    mutants: Mapping[str, float]
    passed_through: tuple[str, ...] = field(default=())

    @property
    def nearest(self) -> tuple[str, float]:
        """The mutant that came nearest to being accepted."""
        return min(self.mutants.items(), key=lambda item: item[1])

    @property
    def why(self) -> str:
        """What is wrong, or nothing."""
        wrong = []
        if not self.excess <= 1:
            wrong.append(f"the output is {self.excess:.3g} times as far from the reference as allowed")
        if self.passed_through:
            wrong.append(f"the bar proves nothing, it lets through: {', '.join(self.passed_through)}")
        return "; ".join(wrong)


def measure(output: npt.ArrayLike, truth: Truth) -> Measured:
    """How far an output is from the reference; infinitely far where it has another shape or is not finite."""
    given = np.asarray(output, np.float64)
    if given.shape != truth.reference.shape or not np.isfinite(given).all():
        return Measured(np.inf, np.inf, np.inf)
    error = given - truth.reference
    worst = max(_relative(*rows) for rows in zip(error, truth.reference, strict=True))
    lean = max((fault.lean(error) for fault in truth.faults), default=0.0)
    return Measured(worst, lean, _relative(error, truth.reference))


def judge(output: npt.ArrayLike, truth: Truth, bar: float) -> Judgement:
    """Hold an output against the bar, and the bar against every mutant."""
    good = measure(output, truth)
    wrong = {name: measure(one, truth).excess(bar) for name, one in _wrong(truth)}
    through = tuple(name for name, excess in wrong.items() if not excess > 1)
    return Judgement(good, good.excess(bar), wrong, through)


def reordered(output: npt.ArrayLike, other: npt.ArrayLike) -> bool:
    """Whether two outputs [rows, columns] are the same but for the order in which they were added up."""
    return measure(output, Truth(np.asarray(other, np.float64), {})).rel_l2 <= REORDERED_BAR


def wrongly_padded(found: Outputs, other: Outputs, whole: Outputs, padding: npt.NDArray[np.bool_]) -> str:
    """Why outputs [tokens, columns] of a batch, some tokens of which are `padding`, are wrong, or nothing.

    `other` is of the same batch where the padding has other numbers, `whole` where none of it is padding: there a token may share an
    expert that it has for itself beside padding, so that its products are added up in another order.
    """
    if found[padding].any():
        return "padding is not zeros"
    if not np.array_equal(found, other):
        return "other tokens are not the same beside other padding"
    return "" if reordered(found[~padding], whole[~padding]) else "other tokens are not as without padding"


def beside_ideal(truth: Truth, rounded: Rounded, times: float) -> tuple[Truth, float]:
    """The truth with the coarser kernels among its mutants, and the bar: so many times an ideal kernel's rel-L2."""
    return replace(truth, mutants={**truth.mutants, **rounded.coarser}), times * measure(rounded.ideal, truth).rel_l2


def _wrong(truth: Truth) -> Iterable[tuple[str, Array]]:
    """Every wrong output, one at a time: they are large."""
    reference = truth.reference
    yield "zeros", np.zeros_like(reference)
    noise = np.random.default_rng(0).standard_normal(reference.shape)
    yield "noise of the same spread", noise * reference.std(axis=1, keepdims=True)
    yield from truth.mutants.items()
    for fault in truth.faults:
        yield fault.name, fault.applied(reference)


def _relative(error: Array, reference: Array) -> float:
    size = float(np.linalg.norm(reference))
    wrong = float(np.linalg.norm(error))
    return wrong / size if size else (np.inf if wrong else 0.0)
