# SPDX-License-Identifier: Apache-2.0
"""The cases of the decode kernels over the whole documented range, small: each takes a second on a CPU."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import Any

from stack.validation.numerics.dense_ranges import LinearBeyond, LinearOutliers, LinearScaled, LinearSpoiled
from stack.validation.numerics.experts import Experts, Glu
from stack.validation.numerics.linear import Linear
from stack.validation.numerics.ranges import Beyond, Outliers, Product, Scaled
from stack.validation.numerics.routes import Decided, Many, Padded, Unknown, Weighted
from stack.validation.numerics.spoiled import Spoiled, Spoiler

REDUCED = "small sizes, at the ends of what the kernels promise"
UNLIMITED = Glu(limit=inf)
_SIZES: dict[str, Any] = {"hidden": 736, "intermediate": 736}
"""Columns whose last 128 are 96."""
_SMALL: dict[str, Any] = {"hidden": 192, "intermediate": 160}


@dataclass(frozen=True, slots=True)
class ExpertsCase:
    """A mixture of experts with its name. `chooses`: by the router's logits, otherwise by ids."""

    name: str
    problem: Experts
    chooses: bool = False


@dataclass(frozen=True, slots=True)
class DenseCase:
    """A dense layer with its name. `many_rows`: for the kernel that takes a single token and many rows."""

    name: str
    problem: Linear
    many_rows: bool = False


def experts() -> tuple[ExpertsCase, ...]:
    """List the mixtures of experts."""
    return tuple(chain(_scales(), _outliers(), _columns(), _spoiled(), _routes()))


def _scales() -> Iterator[ExpertsCase]:
    for tokens, top in ((1, 2), (5, 2)):
        sizes: dict[str, Any] = {"experts": 3, "top": top, "glu": UNLIMITED}
        for product, bias, hidden, intermediate in ((Product.FIRST, True, 736, 96), (Product.SECOND, False, 96, 736)):
            for high in (False, True):
                layer = Scaled(tokens, **sizes, hidden=hidden, intermediate=intermediate, bias=bias, product=product, high=high)
                yield ExpertsCase(f"scales={'highest' if high else 'all'}-{product}", layer)

    for tokens in (1, 5):
        yield ExpertsCase("scales=beyond", Beyond(tokens, experts=3, top=2, **_SMALL))


def _outliers() -> Iterator[ExpertsCase]:
    for tokens in (1, 5):
        yield ExpertsCase("outliers-beside", Outliers(tokens, experts=3, top=2, **_SMALL, glu=UNLIMITED))
        yield ExpertsCase("outliers", Outliers(tokens, experts=3, top=2, **_SMALL, silent=False))


def _columns() -> Iterator[ExpertsCase]:
    one = Experts(1, experts=3, top=2)
    for columns in (2880, 8192):
        yield ExpertsCase(f"columns={columns}-first", replace(one, hidden=columns, intermediate=64))
        yield ExpertsCase(f"columns={columns}-second", replace(one, hidden=64, intermediate=columns))
    for tokens in (1, 5):
        yield ExpertsCase("last-tile=96", Experts(tokens, experts=3, top=2, hidden=96, intermediate=96))
        yield ExpertsCase("last-tile=736", Experts(tokens, experts=3, top=2, **_SIZES))
    # A sigmoid so flat that gates far below zero count: only above zero have they a limit.
    yield ExpertsCase("flat-activation", Experts(5, experts=3, top=2, **_SMALL, glu=Glu(alpha=0.25, limit=3.0)))
    yield ExpertsCase("no-limit", Experts(5, experts=3, top=2, **_SMALL, glu=UNLIMITED))


def _spoiled() -> Iterator[ExpertsCase]:
    yield ExpertsCase("no-numbers", Spoiled(12, experts=24, top=2, **_SMALL))
    for spoiler in Spoiler:
        yield ExpertsCase(f"no-number={spoiler}", Spoiled(1, experts=3, top=2, **_SMALL, spoilers=(spoiler,)))
    for spoiler in (Spoiler.FIRST_SCALE, Spoiler.SECOND_SCALE):  # of an expert that several tokens share
        yield ExpertsCase(f"no-number={spoiler}", Spoiled(6, experts=2, top=1, **_SMALL, spoilers=(spoiler,)))


def _routes() -> Iterator[ExpertsCase]:
    for tokens in (1, 14):
        layer = Decided(
            tokens, experts=40, top=4, **_SMALL, elsewhere=1
        )  # with a map ids are the experts' own: of equal ones the lowest
        yield ExpertsCase("logits=200", layer, chooses=True)
    yield ExpertsCase("padding", Padded(8, experts=8, top=4, **_SMALL), chooses=True)
    for tokens in (3, 5, 6, 7, 13):  # all of them share both experts, in groups of up to eight
        yield ExpertsCase("together", Experts(tokens, experts=2, top=2, hidden=96, intermediate=96))
    # So many tokens that they come in parts where a block has 99 KB, and fewer warps than tokens.
    padded = Padded(14, experts=3, hidden=2880, intermediate=32, top=2)
    yield ExpertsCase("padding-in-parts", padded, chooses=True)
    yield ExpertsCase("logits=3000", Many(2, experts=3000, top=4, hidden=64, intermediate=32), chooses=True)
    yield ExpertsCase("weights-of-both-signs", Weighted(5, experts=8, top=4, **_SMALL))
    for elsewhere in (0, 3):
        yield ExpertsCase(
            f"unknown-ids{'-with-a-map' if elsewhere else ''}", Unknown(10, experts=8, top=4, **_SMALL, elsewhere=elsewhere)
        )
    yield ExpertsCase("twice-the-same-expert", Experts(1, experts=4, top=4, **_SMALL, twice=True))
    yield ExpertsCase("w13=2^32-bytes", Many(3, experts=65535, top=2, hidden=256, intermediate=288))


def dense() -> tuple[DenseCase, ...]:
    """List the dense layers."""
    return tuple(chain(_few_rows(), _many_rows()))


def _few_rows() -> Iterator[DenseCase]:
    layer: dict[str, Any] = {"tokens": 4, "inputs": 736, "outputs": 56, "weight": "mxfp4"}
    for high in (False, True):
        yield DenseCase(f"scales={'highest' if high else 'all'}", LinearScaled(**layer, high=high, bias=not high))
    yield DenseCase("scales=beyond", LinearBeyond(**layer))
    yield DenseCase("outliers", LinearOutliers(**layer))
    yield DenseCase("no-numbers", LinearSpoiled(**layer))
    yield DenseCase("columns=8192", Linear(1, 8192, 56, "mxfp4"))


def _many_rows() -> Iterator[DenseCase]:
    layer: dict[str, Any] = {"tokens": 1, "inputs": 736, "outputs": 540, "weight": "mxfp4"}
    for high in (False, True):
        name = f"many-rows/scales={'highest' if high else 'all'}"
        yield DenseCase(name, LinearScaled(**layer, high=high, bias=not high), many_rows=True)
    yield DenseCase("many-rows/scales=beyond", LinearBeyond(**layer, large=False), many_rows=True)
    yield DenseCase("many-rows/outliers-beside", LinearOutliers(**layer, fixed=True), many_rows=True)
    yield DenseCase("many-rows/no-number=scale", LinearSpoiled(**layer), many_rows=True)
    for columns in (2880, 8192):
        yield DenseCase(f"many-rows/columns={columns}", Linear(1, columns, 540, "mxfp4"), many_rows=True)
