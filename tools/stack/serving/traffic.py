# SPDX-License-Identifier: Apache-2.0
"""The bytes that one step of decoding reads, by component: from the model's shape and how it lies in memory.

Counted are the matrices and the KV cache. What is left out is below 0.2 % of them for gpt-oss: biases, norms and sinks, the rows of
the embedding, activations, and what is written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stack.serving.formats import MXFP4, Format
from stack.serving.layout import Layout

_VOCABULARY = 64
"""vLLM pads vocabularies to a multiple of it (vocab_parallel_embedding.py)."""
CACHE = "KV"
"""The component that grows with the context."""
COMPONENTS = ("experts", "qkv", "o", "lm_head", "router", CACHE)
"""What is counted, in this order."""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the model, its format and extent in words, and the bytes of it that one node reads in a step."""

    name: str
    form: str
    size: float


def of(layout: Layout, context: int, batch: int = 1) -> tuple[Component, ...]:
    """What one node reads for the next token of each of `batch` requests that are `context` tokens long.

    Each token's experts are taken to be chosen uniformly and independently: text chooses less evenly, so batches read less.
    """
    shape = layout.shape
    experts = distinct(shape.num_local_experts, shape.num_experts_per_tok, batch)
    extent = f"{MXFP4.name}, {experts:.3g} of {shape.num_local_experts}, {layout.hidden} x {layout.intermediate}"
    found = (
        (extent, shape.num_hidden_layers * experts * _expert(layout)),
        (_names(layout.qkv), _qkv(layout)),
        (_names(layout.o), _o(layout)),
        (layout.lm_head.name, _head(layout)),
        (layout.dense.name, _router(layout)),
        (layout.kv.name, batch * _cache(layout, context)),
    )
    return tuple(Component(name, form, size) for name, (form, size) in zip(COMPONENTS, found, strict=True))


def distinct(experts: int, chosen: int, tokens: int) -> float:
    """How many different ones of `experts` so many tokens choose, if each chooses `chosen` of them uniformly: the mean."""
    # Written so that one token chooses exactly `chosen`.
    return chosen if tokens == 1 else experts * (1 - (1 - chosen / experts) ** tokens)


def tiles(rows: int, columns: int) -> tuple[int, int]:
    """An extent that Marlin has tiles for: 64 x 128 or 128 x 64 (marlin_padded_nk() in vLLM's marlin_utils.py)."""
    ways = [(math.ceil(rows / one) * one, math.ceil(columns / other) * other) for one, other in ((64, 128), (128, 64))]
    return min(ways, key=math.prod)


def _expert(layout: Layout) -> int:
    """Gate and up projections, and the one down."""
    return MXFP4.size(2 * layout.intermediate, layout.hidden) + MXFP4.size(layout.hidden, layout.intermediate)


def _qkv(layout: Layout) -> int:
    heads = layout.shape.num_attention_heads // layout.nodes + 2 * _kv_heads(layout)
    return _dense(layout, layout.qkv, heads * layout.shape.head_dim, layout.shape.hidden_size)


def _o(layout: Layout) -> int:
    inputs = layout.shape.num_attention_heads * layout.shape.head_dim // layout.nodes
    return _dense(layout, layout.o, layout.shape.hidden_size, inputs)


def _head(layout: Layout) -> int:
    vocabulary = math.ceil(layout.shape.vocab_size / _VOCABULARY) * _VOCABULARY
    return _dense(layout, [layout.lm_head], math.ceil(vocabulary / layout.nodes), layout.shape.hidden_size)


def _router(layout: Layout) -> int:
    """All of it on every node."""
    shape = layout.shape
    return shape.num_hidden_layers * layout.dense.size(shape.num_local_experts, shape.hidden_size)


def _cache(layout: Layout, context: int) -> int:
    """Keys and values of one request; every other layer, from the first one, sees its sliding window only."""
    shape = layout.shape
    sliding = math.ceil(shape.num_hidden_layers / 2)
    tokens = sliding * min(context, shape.sliding_window) + (shape.num_hidden_layers - sliding) * context
    return 2 * layout.kv.size(tokens * _kv_heads(layout), shape.head_dim) if tokens else 0


def _kv_heads(layout: Layout) -> int:
    """Those of one node: more nodes than heads have copies."""
    return max(1, layout.shape.num_key_value_heads // layout.nodes)


def _dense(layout: Layout, chosen: Sequence[Format], rows: int, columns: int) -> int:
    """Matrices of that extent, one in each format."""
    tiled = tiles(rows, columns)
    return sum(one.size(*(tiled if layout.tiles and one == MXFP4 else (rows, columns))) for one in chosen)


def _names(chosen: Sequence[Format]) -> str:
    return ", ".join(dict.fromkeys(one.name for one in chosen))
