# SPDX-License-Identifier: Apache-2.0
"""Compute the bytes that a decoding step reads, by component, from the model's shape and its layout in memory.

Matrices and the KV cache are counted. The rest is below 0.2 % of them for gpt-oss: biases, norms and sinks, rows of the embedding,
activations, and everything that is written.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stack.deploy.formats import MXFP4, Format
from stack.serving.layout import Layout

_VOCABULARY = 64
"""vLLM pads vocabularies to a multiple of this (vocab_parallel_embedding.py)."""
CACHE = "KV"
"""The component that grows with the context."""
COMPONENTS = ("experts", "qkv", "o", "lm_head", "router", CACHE)
"""The counted components, in order."""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of the model: name, format and extent in words, and the bytes of it that one node reads in a step."""

    name: str
    form: str
    size: float


def of(layout: Layout, context: int, batch: int = 1, tokens: int = 1) -> tuple[Component, ...]:
    """Compute what one node reads in a step of `batch` requests that are `context` tokens long, with `tokens` of each to compute.

    Each token is assumed to choose its experts uniformly and independently. Real text chooses less evenly, so batches read less.
    """
    shape = layout.shape
    experts = distinct(shape.num_local_experts, shape.num_experts_per_tok, batch * tokens)
    extent = f"{MXFP4.name}, {experts:.3g} of {shape.num_local_experts}, {layout.hidden} x {layout.intermediate}"
    parts = (
        (extent, shape.num_hidden_layers * experts * _expert(layout)),
        (_names(layout.qkv), _qkv(layout)),
        (_names(layout.o), _o(layout)),
        (layout.lm_head.name, _head(layout)),
        (layout.dense.name, _router(layout)),
        (layout.kv.name, batch * _cache(layout, context)),
    )
    return tuple(Component(name, form, size) for name, (form, size) in zip(COMPONENTS, parts, strict=True))


def distinct(experts: int, chosen: int, tokens: int) -> float:
    """Compute the mean number of different experts, if each of `tokens` chooses `chosen` of `experts` uniformly."""
    # Exact for one token, where the formula would round.
    return chosen if tokens == 1 else experts * (1 - (1 - chosen / experts) ** tokens)


def tiles(rows: int, columns: int) -> tuple[int, int]:
    """Round an extent up to Marlin's tiles: 64 x 128 or 128 x 64 (marlin_padded_nk() in vLLM's marlin_utils.py)."""
    ways = [(math.ceil(rows / tall) * tall, math.ceil(columns / wide) * wide) for tall, wide in ((64, 128), (128, 64))]
    return min(ways, key=math.prod)


def _expert(layout: Layout) -> int:
    """Count the bytes of an expert: the gate, up and down projections."""
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
    """Count the bytes of the router; every node reads all of it."""
    shape = layout.shape
    return shape.num_hidden_layers * layout.dense.size(shape.num_local_experts, shape.hidden_size)


def _cache(layout: Layout, context: int) -> int:
    """Count keys and values of one request; every other layer, from the first one, reads only its sliding window."""
    shape = layout.shape
    sliding = math.ceil(shape.num_hidden_layers / 2)
    tokens = sliding * min(context, shape.sliding_window) + (shape.num_hidden_layers - sliding) * context
    return 2 * layout.kv.size(tokens * _kv_heads(layout), shape.head_dim) if tokens else 0


def _kv_heads(layout: Layout) -> int:
    """Return the KV heads of one node; if there are more nodes than heads, nodes have copies."""
    return max(1, layout.shape.num_key_value_heads // layout.nodes)


def _dense(layout: Layout, chosen: Sequence[Format], rows: int, columns: int) -> int:
    """Count matrices of that extent, one in each format."""
    tiled = tiles(rows, columns)
    return sum(form.size(*(tiled if layout.tiles and form == MXFP4 else (rows, columns))) for form in chosen)


def _names(chosen: Sequence[Format]) -> str:
    return ", ".join(dict.fromkeys(form.name for form in chosen))
