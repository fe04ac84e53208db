# SPDX-License-Identifier: Apache-2.0
"""Attention of gpt-oss: grouped heads, a sink a head, a sliding window, and a KV cache in bfloat16 or E4M3; in float64, with mutants.

A sink is a logit without a key: it takes part in the softmax and adds nothing to the output. A window of n lets a token see itself
and the n - 1 before it. Facts: 64 heads over 8 of keys and values, of 64 each; a window of 128 in every other layer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stack.validation.numerics.formats import E4M3, Array, Single, bfloat16, decode, encode
from stack.validation.numerics.judging import Truth


@dataclass(frozen=True)
class Attention:
    """Sequences, each (queries, keys): its queries are the last of its tokens. Drawn from a seed.

    `cache`: bfloat16, e4m3, or e4m3-cut, which is rounded towards zero; in E4M3 a key is stored as key / `key_scale`, a value
    likewise. `page`: tokens of a cache page.
    """

    sequences: tuple[tuple[int, int], ...]
    window: int | None = None
    cache: str = "bfloat16"
    heads: int = 64
    shared: int = 8
    width: int = 64
    page: int = 32
    seed: int = 0

    key_scale = 0.0625
    value_scale = 0.03125

    @property
    def scale(self) -> float:
        """What logits are multiplied by."""
        return float(self.width**-0.5)

    @property
    def tokens(self) -> int:
        """Queries of all sequences."""
        return sum(queries for queries, _ in self.sequences)

    @cached_property
    def sinks(self) -> Single:
        """A logit a head, bfloat16 in float32."""
        return bfloat16(self._draw(0).uniform(0, 5, self.heads))

    @cached_property
    def queries(self) -> Single:
        """bfloat16 in float32: [tokens, heads, width]."""
        return bfloat16(self._draw(1).standard_normal((self.tokens, self.heads, self.width)))

    def keys(self, sequence: int) -> tuple[Single, Single]:
        """Keys and values of a sequence, bfloat16 in float32: [keys, shared, width]."""
        draw = self._draw(2 + sequence)
        shape = (self.sequences[sequence][1], self.shared, self.width)
        return bfloat16(draw.standard_normal(shape)), bfloat16(draw.standard_normal(shape))

    def truth(self) -> Truth:
        """The output [tokens, heads x width], and what wrong kernels make of it."""
        mutants = {name: _output(self, wrong) for name, wrong in _wrong(self)}
        return Truth(_output(self, _RIGHT), mutants)

    def _draw(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, what])


@dataclass(frozen=True, slots=True)
class _Way:
    """How a kernel attends: as it should, unless something is replaced."""

    sinks: bool = True
    window: int = 0
    """What is added to the window."""
    last: int = 0
    """What is added to the last key that a query sees."""
    scales: bool = True
    pages: bool = True
    grouped: bool = True


_RIGHT = _Way()


def _wrong(one: Attention) -> Iterator[tuple[str, _Way]]:
    yield "sink missing", replace(_RIGHT, sinks=False)
    yield "heads grouped the wrong way", replace(_RIGHT, grouped=False)
    if any(keys > 1 for _, keys in one.sequences):
        yield "last key missing", replace(_RIGHT, last=-1)
    if any(keys > one.page for _, keys in one.sequences):
        yield "one page read for the next", replace(_RIGHT, pages=False)
    if one.cache != "bfloat16":
        yield "scales of keys and values missing", replace(_RIGHT, scales=False)
    if one.window is not None and any(keys > one.window for _, keys in one.sequences):
        yield "window longer by one", replace(_RIGHT, window=1)
        yield "window shorter by one", replace(_RIGHT, window=-1)


def stored(one: Attention, numbers: Single, scale: float) -> Array:
    """Keys or values as they come out of the cache."""
    given = numbers.astype(np.float64)
    return given if one.cache == "bfloat16" else decode(E4M3, encode(E4M3, given / scale, cut=one.cache == "e4m3-cut")) * scale


def _output(one: Attention, way: _Way) -> Array:
    output = np.zeros((one.tokens, one.heads, one.width))
    first = 0
    for number, (queries, _) in enumerate(one.sequences):
        rows = slice(first, first + queries)
        output[rows] = _sequence(one, way, one.queries[rows].astype(np.float64), *one.keys(number))
        first += queries
    return output.reshape(one.tokens, -1)


def _sequence(one: Attention, way: _Way, queries: Array, keys: Single, values: Single) -> Array:
    read: Callable[[Single, float], Array] = lambda given, scale: _paged(  # noqa: E731
        one, way, stored(one, given, scale) / (1.0 if way.scales else scale)
    )
    key, value = read(keys, one.key_scale), read(values, one.value_scale)
    seen = _seen(one, way, len(queries), len(keys))
    output = np.zeros_like(queries)
    group = one.heads // one.shared
    for head in range(one.heads):
        mine = head // group if way.grouped else head % one.shared
        logits = np.where(seen, queries[:, head] @ key[:, mine].T * one.scale, -np.inf)
        sink = float(one.sinks[head]) if way.sinks else -np.inf
        # A query that sees no key at all, which only a mutant's may, gets nothing.
        top = np.maximum(np.maximum(logits.max(axis=1, keepdims=True), sink), -1e300)
        powers = np.exp(logits - top)
        total = powers.sum(axis=1, keepdims=True) + np.exp(sink - top)
        output[:, head] = powers @ value[:, mine] / np.where(total > 0, total, 1.0)
    return output


def _seen(one: Attention, way: _Way, queries: int, keys: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Which keys each query sees: [queries, keys]."""
    place = np.arange(keys - queries, keys)[:, None]
    key = np.arange(keys)[None, :]
    seen = key <= place + way.last
    return seen & (key > place - one.window - way.window) if one.window is not None else seen


def _paged(one: Attention, way: _Way, numbers: Array) -> Array:
    """What is read from the cache: a mutant takes the last page but one for the last."""
    if way.pages or len(numbers) <= one.page:
        return numbers
    last = (len(numbers) - 1) // one.page * one.page
    wrong = numbers.copy()
    wrong[last:] = numbers[last - one.page : last - one.page + len(numbers) - last]
    return wrong
