# SPDX-License-Identifier: Apache-2.0
"""Reference of gpt-oss's attention in float64, with mutants: grouped heads, sinks, sliding window, KV cache in bfloat16 or E4M3.

A sink is a logit without a key, one per head: it takes part in the softmax and adds nothing to the output. With a window of n a token
sees itself and the n - 1 tokens before it. gpt-oss has 64 query heads over 8 key/value heads of 64 each, and a window of 128 in
every other layer.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stack.validation.numerics.formats import E4M3, Array, Single, bfloat16, decode, encode
from stack.validation.numerics.judging import Truth


@dataclass(frozen=True)
class Attention:
    """Sequences, each as (queries, keys), drawn from a seed. The queries of a sequence are its last tokens.

    `cache`: bfloat16, e4m3, or e4m3-cut, which is rounded towards zero. In E4M3 a key is stored as key / `key_scale`; values
    likewise. `page`: tokens per cache page.
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
        """Factor of the logits."""
        return float(self.width**-0.5)

    @property
    def tokens(self) -> int:
        """Number of queries of all sequences."""
        return sum(queries for queries, _ in self.sequences)

    @cached_property
    def sinks(self) -> Single:
        """One logit per head, bfloat16 in float32."""
        return bfloat16(self._draw(0).uniform(0, 5, self.heads))

    @cached_property
    def queries(self) -> Single:
        """Queries, bfloat16 in float32: [tokens, heads, width]."""
        return bfloat16(self._draw(1).standard_normal((self.tokens, self.heads, self.width)))

    def keys(self, sequence: int) -> tuple[Single, Single]:
        """Draw keys and values of a sequence, bfloat16 in float32: [keys, shared, width]."""
        draw = self._draw(2 + sequence)
        shape = (self.sequences[sequence][1], self.shared, self.width)
        return bfloat16(draw.standard_normal(shape)), bfloat16(draw.standard_normal(shape))

    def truth(self) -> Truth:
        """Compute the output [tokens, heads x width], and the outputs of wrong kernels."""
        mutants = {name: _output(self, wrong) for name, wrong in _wrong(self)}
        return Truth(_output(self, _RIGHT), mutants)

    def _draw(self, what: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, what])


@dataclass(frozen=True, slots=True)
class _Variant:
    """Variant of the computation; the default is correct, each changed field is a fault."""

    sinks: bool = True
    window: int = 0
    """Added to the window."""
    last: int = 0
    """Added to the position of the last key that a query sees."""
    scales: bool = True
    pages: bool = True
    grouped: bool = True


_RIGHT = _Variant()


def _wrong(problem: Attention) -> Iterator[tuple[str, _Variant]]:
    yield "sink missing", replace(_RIGHT, sinks=False)
    yield "heads grouped the wrong way", replace(_RIGHT, grouped=False)
    if any(keys > 1 for _, keys in problem.sequences):
        yield "last key missing", replace(_RIGHT, last=-1)
    if any(keys > problem.page for _, keys in problem.sequences):
        yield "one page read for the next", replace(_RIGHT, pages=False)
    if problem.cache != "bfloat16":
        yield "scales of keys and values missing", replace(_RIGHT, scales=False)
    if problem.window is not None and any(keys > problem.window for _, keys in problem.sequences):
        yield "window longer by one", replace(_RIGHT, window=1)
        yield "window shorter by one", replace(_RIGHT, window=-1)


def stored(problem: Attention, numbers: Single, scale: float) -> Array:
    """Return keys or values as they are read back from the cache."""
    given = numbers.astype(np.float64)
    if problem.cache == "bfloat16":
        return given
    return decode(E4M3, encode(E4M3, given / scale, cut=problem.cache == "e4m3-cut")) * scale


def _output(problem: Attention, variant: _Variant) -> Array:
    output = np.zeros((problem.tokens, problem.heads, problem.width))
    first = 0
    for number, (queries, _) in enumerate(problem.sequences):
        rows = slice(first, first + queries)
        output[rows] = _sequence(problem, variant, problem.queries[rows].astype(np.float64), *problem.keys(number))
        first += queries
    return output.reshape(problem.tokens, -1)


def _sequence(problem: Attention, variant: _Variant, queries: Array, keys: Single, values: Single) -> Array:
    read: Callable[[Single, float], Array] = lambda given, scale: _paged(  # noqa: E731
        problem, variant, stored(problem, given, scale) / (1.0 if variant.scales else scale)
    )
    key, value = read(keys, problem.key_scale), read(values, problem.value_scale)
    seen = _seen(problem, variant, len(queries), len(keys))
    output = np.zeros_like(queries)
    group = problem.heads // problem.shared
    for head in range(problem.heads):
        mine = head // group if variant.grouped else head % problem.shared
        logits = np.where(seen, queries[:, head] @ key[:, mine].T * problem.scale, -np.inf)
        sink = float(problem.sinks[head]) if variant.sinks else -np.inf
        # In a mutant a query may see no key at all: its output is 0.
        top = np.maximum(np.maximum(logits.max(axis=1, keepdims=True), sink), -1e300)
        powers = np.exp(logits - top)
        total = powers.sum(axis=1, keepdims=True) + np.exp(sink - top)
        output[:, head] = powers @ value[:, mine] / np.where(total > 0, total, 1.0)
    return output


def _seen(problem: Attention, variant: _Variant, queries: int, keys: int) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Mark the keys that each query sees: [queries, keys]."""
    place = np.arange(keys - queries, keys)[:, None]
    key = np.arange(keys)[None, :]
    seen = key <= place + variant.last
    return seen & (key > place - problem.window - variant.window) if problem.window is not None else seen


def _paged(problem: Attention, variant: _Variant, numbers: Array) -> Array:
    """Read from the cache; the mutant reads the last page but one in place of the last."""
    if variant.pages or len(numbers) <= problem.page:
        return numbers
    last = (len(numbers) - 1) // problem.page * problem.page
    wrong = numbers.copy()
    wrong[last:] = numbers[last - problem.page : last - problem.page + len(numbers) - last]
    return wrong
