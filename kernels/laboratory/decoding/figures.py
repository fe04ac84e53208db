# SPDX-License-Identifier: Apache-2.0
"""Bytes, routes, times, goals and tables of decode kernels: everything that needs no GPU.

The bytes are those that a step must read: weights without padding, each once. So a kernel that pads, or reads an expert twice, has a
lower share of the bandwidth.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from stack.validation import decode_goals
from stack.validation.decode_goals import LM_HEAD, MOE, QKV_O, SATURATED
from stack.validation.numerics.experts import TOP, Ids, route
from stack.validation.numerics.formats import Single, bfloat16

Bits = npt.NDArray[np.int16]
"""An output in bfloat16, as integers."""

HIDDEN = INTERMEDIATE = 2880
EXPERTS = 128
LAYERS = 36
VOCABULARY = 201_088
DENSE = ((5120, HIDDEN), (HIDDEN, 4096))
"""Outputs and inputs of qkv and o."""
OURS = "ours"
SPARK = 273e9
"""Memory bandwidth of a DGX Spark in bytes per second, from its data sheet."""

STREAMED = 400_000_000
"""Eight times the L2 cache of an H200 (50 MB). If a graph reads fewer bytes, some may come from the cache, and it is not judged."""


def matrix(outputs: int, inputs: int, *, four_bits: bool = True, bias: bool = True) -> int:
    """Count the bytes of a dense weight: in MXFP4 half a byte per element and a byte per 32, else bfloat16; its bias in bfloat16."""
    weight = outputs * inputs * 17 // 32 if four_bits else 2 * outputs * inputs
    return weight + (2 * outputs if bias else 0)


def expert() -> int:
    """Count the bytes of one expert of gpt-oss: gate and up, and down, with their biases."""
    return matrix(2 * INTERMEDIATE, HIDDEN) + matrix(HIDDEN, INTERMEDIATE)


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """The experts of tokens in each layer: `logits` in bfloat16 [layers, tokens, experts], `ids`, `weights` [layers, tokens, top]."""

    logits: Single
    ids: Ids
    weights: Single

    @property
    def touched(self) -> int:
        """Number of experts that have a token, over all layers."""
        return sum(len(np.unique(ids)) for ids in self.ids)


def routes(seed: int, layers: int, tokens: int) -> Routes:
    """Draw independent logits, so that every choice of four experts has the same probability, and route by them."""
    logits = bfloat16(np.random.default_rng([seed, layers, tokens]).standard_normal((layers, tokens, EXPERTS)))
    chosen = [route(layer) for layer in logits]
    return Routes(logits, np.stack([ids for ids, _ in chosen]), np.stack([weights for _, weights in chosen]))


def every_expert(layers: int, tokens: int = 16) -> Ids:
    """Choose every expert of each layer once: int32 [layers, tokens, experts / tokens], in a different order per layer."""
    orders = [np.random.default_rng(layer).permutation(EXPERTS) for layer in range(layers)]
    return np.stack(orders).reshape(layers, tokens, EXPERTS // tokens).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one part of the model with `tokens` tokens: seconds of each replay of `layers` layers, and the bytes they read.

    `why` says why there are no times. `touched`: experts per layer that have a token, on average.
    """

    part: str
    kernel: str
    tokens: int
    layers: int
    read: int
    times: tuple[float, ...] = ()
    why: str = ""
    touched: float | None = None
    failed: bool = False

    @property
    def seconds(self) -> float:
        """Median time of one layer over all replays."""
        return statistics.median(self.times) / self.layers

    @property
    def spread(self) -> float:
        """Interquartile range of the replays, divided by their median."""
        low, middle, high = statistics.quantiles(self.times, n=4) if len(self.times) > 1 else self.times * 3
        return (high - low) / middle

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.read / self.layers / self.seconds


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: the value found (None if it was not measured), and the least that is enough."""

    name: str
    found: float | None
    least: float

    @property
    def met(self) -> bool | None:
        """Whether it was reached; None if it was not measured."""
        return None if self.found is None else self.found >= self.least

    def __str__(self) -> str:
        word = {True: "met", False: "missed", None: "not measured"}[self.met]
        found = "" if self.found is None else f"{self.found:.2f}"
        return f"{word:12} {self.name:58} {found:>6} of {self.least:.2f}"


def goals(rows: Sequence[Row], copied: float) -> Iterator[Goal]:
    """Compare rows with the goals; `copied` is the bandwidth of a copy in bytes per second."""
    judged = {(row.part, row.kernel, row.tokens): row for row in reversed(rows) if row.times and row.read >= STREAMED}
    for goal in decode_goals.GOALS:
        ours = judged.get((goal.part, OURS, goal.tokens))
        others = [judged.get((goal.part, other, goal.tokens)) for other in goal.others]
        measured = [other.seconds for other in others if other is not None]
        found = None
        if ours is not None and len(measured) == len(others):
            found = min(measured) / ours.seconds if measured else ours.rate / copied
        yield Goal(goal.name, found, goal.least)


def switch(rows: Sequence[Row], part: str) -> tuple[int, str] | None:
    """Find the fewest tokens for which another kernel is faster than ours, and that kernel; None if there is none."""
    timed = sorted((row for row in rows if row.part == part and row.times), key=lambda row: (row.tokens, row.seconds))
    for tokens, measured in groupby(timed, key=lambda row: row.tokens):
        ranked = [row.kernel for row in measured]
        if OURS in ranked and not ranked[0].startswith(OURS):
            return tokens, ranked[0]
    return None


def switched(rows: Sequence[Row], part: str) -> str:
    """Describe `switch` as a sentence."""
    if faster := switch(rows, part):
        return f"{faster[1]} is faster from M = {faster[0]} on"
    timed = [row for row in rows if row.part == part and row.times]
    ours = {row.tokens for row in timed if row.kernel == OURS}
    beside = [row for row in timed if row.tokens in ours and not row.kernel.startswith(OURS)]
    if not beside:
        return "nothing was measured beside ours"
    most = max(row.tokens for row in beside)
    return f"ours is as fast as {', '.join(sorted({row.kernel for row in beside}))} at every M measured, up to M = {most}"


def token(layers: int = LAYERS) -> dict[str, int]:
    """Count the bytes of weights that a single token reads, by part."""
    return {
        MOE: layers * TOP * expert(),
        QKV_O: layers * sum(matrix(*shape) for shape in DENSE),
        LM_HEAD: matrix(VOCABULARY, HIDDEN, bias=False),
    }


def prediction(rows: Sequence[Row], copied: float) -> tuple[float, float] | None:
    """Predict a Spark's milliseconds for a token's experts, qkv, o and lm_head, from its data sheet's bandwidth.

    It is assumed that each part reaches the same share of a copy's bandwidth as measured here. The first number takes the experts'
    share with all experts touched, the second their share with one token. None if a part was not measured.
    """
    ours = {(row.part, row.tokens): row.rate / copied for row in rows if row.kernel == OURS and row.times}
    best = {MOE: (SATURATED, 16), QKV_O: (QKV_O, 1), LM_HEAD: (LM_HEAD, 1)}
    alone = {part: (part, 1) for part in best}
    if not {*best.values(), *alone.values()} <= ours.keys():
        return None
    first, second = (1e3 * sum(size / SPARK / ours[by[part]] for part, size in token().items()) for by in (best, alone))
    return first, second


def predicted(rows: Sequence[Row], copied: float) -> str:
    """Describe `prediction` as a sentence; empty without one."""
    predicted_ms = prediction(rows, copied)
    if predicted_ms is None:
        return ""
    return (
        f"prediction, not measured: a Spark reads a token's weights in {predicted_ms[0]:.1f} ms at the share that experts have here when all are "
        f"touched, in {predicted_ms[1]:.1f} ms at theirs with one token (qkv, o and lm_head as with one in both), "
        f"were a copy there to reach all of the data sheet's 273 GB/s; a copy here reaches "
        f"{copied / 1e9:.0f} GB/s"
    )


def changed(alone: Sequence[Bits], replayed: Sequence[Bits]) -> str:
    """Describe how the outputs of a graph's steps differ in bits from those of the steps run alone; empty if they do not."""
    pairs = list(zip(alone, replayed, strict=True))
    differ = [number for number, (single, other) in enumerate(pairs) if not np.array_equal(single, other)]
    if not differ:
        return ""
    return f"wrong: {len(differ)} of {len(pairs)} steps of the graph, the first is {differ[0]}, have other bits than when run alone"


def table(rows: Sequence[Row], copied: float) -> Iterator[str]:
    """Format a block of lines per part and number of tokens: each kernel's time per layer, its share of the bandwidth, and by ours."""
    for (part, tokens), grouped in groupby(rows, key=lambda row: (row.part, row.tokens)):
        block = list(grouped)
        ours = next((row for row in block if row.kernel == OURS and row.times), None)
        known = min((row for row in block if row.read), key=lambda row: row.read / row.layers, default=block[0])
        touched = f", {known.touched:.1f} experts a layer" if known.touched is not None else ""
        yield f"{part}, M = {tokens}{touched}, {known.read / known.layers / 1e6:.1f} MB each"
        for row in block:
            yield f"    {row.kernel:22} {_figures(row, ours, copied) if row.times else row.why}"


def _figures(row: Row, ours: Row | None, copied: float) -> str:
    by_ours = f"{row.seconds / ours.seconds:6.2f} x ours" if ours is not None and row is not ours else ""
    # For a bfloat16 weight, the share is computed from its own, larger size.
    return f"{1e6 * row.seconds:9.2f} us  {100 * row.rate / copied:5.1f} %  +-{100 * row.spread:4.1f} %  {by_ours}".rstrip()


def as_json(row: Row) -> dict[str, object]:
    """Convert a row to JSON, with the values that follow from its times."""
    measured: dict[str, object] = {}
    if row.times:
        measured = {"us": 1e6 * row.seconds, "spread": row.spread, "gb_s": row.rate / 1e9, "replays": len(row.times)}
    return {
        "part": row.part, "kernel": row.kernel, "tokens": row.tokens, "layers": row.layers, "bytes": row.read,
        "touched": row.touched, "why": row.why, "failed": row.failed, **measured,
    }  # fmt: skip
