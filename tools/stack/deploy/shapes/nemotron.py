# SPDX-License-Identifier: Apache-2.0
"""Build Nemotron-H: each layer is one of Mamba, attention, experts, or a dense feed-forward layer."""

from stack.deploy import formats
from stack.deploy.shapes import layers
from stack.deploy.shapes.keys import Keys
from stack.deploy.shapes.layers import Parts
from stack.deploy.shapes.model import Model, Split
from stack.deploy.shapes.source import LAYERS, Source

_LETTERS = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
"""Kinds of layers by the letters of `hybrid_override_pattern`."""


def nemotron(source: Source) -> Model:
    """Build Nemotron-H: each layer is one of Mamba, attention, experts, or a dense feed-forward layer."""
    keys, parts = source.keys, source.parts("backbone.", "model.")
    kinds = _kinds(keys, "hybrid_override_pattern", "layers_block_type")
    if not 0 < len(kinds) <= LAYERS:
        raise keys.error("hybrid_override_pattern", f"is missing, or has more than {LAYERS} layers")
    if keys.given("num_hidden_layers") and len(kinds) != source.layers():
        raise keys.error("hybrid_override_pattern", f"has {len(kinds)} layers, num_hidden_layers says {source.layers()}")
    if keys.given("sliding_window"):
        raise keys.error("sliding_window", "is set", "it is not counted for this kind of model")
    for layer, kind in enumerate(kinds):
        _layer(source, parts, f"layers.{layer}.mixer", kind)
    draft = None
    drafted = _kinds(keys, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if keys.optional("num_nextn_predict_layers") and drafted:
        draft, hidden = source.parts("mtp."), keys.whole("hidden_size")
        draft.add(layers.ATTENTION, "layers.0.eh_proj", hidden, 2 * hidden, Split.ROWS)
        for layer, kind in enumerate(drafted):
            _layer(source, draft, f"layers.{layer}.mixer", kind)
        layers.head(draft, tied=source.tied)
    return source.built("nemotron_h", parts, draft)


def _kinds(keys: Keys, letters: str, words: str) -> tuple[str, ...]:
    """Read the kinds of layers, as letters or as words."""
    if not keys.given(letters):
        kinds = keys.texts(words, LAYERS)
        if odd := {*kinds} - {*_LETTERS.values()}:
            raise keys.error(words, f"has {min(odd)!r:.40}", f"known are {', '.join(_LETTERS.values())}")
        return kinds
    pattern = keys.text(letters)
    if odd := {*pattern} - {*_LETTERS}:
        raise keys.error(letters, f"has {min(odd)!r:.40}", f"known are {' '.join(_LETTERS)}")
    keys.given(words)
    return tuple(_LETTERS[letter] for letter in pattern[: LAYERS + 1])


def _layer(source: Source, parts: Parts, tail: str, kind: str) -> None:
    if kind == "mamba":
        layers.mamba(parts, tail)
    elif kind == "attention":
        layers.attention(parts, tail)
    elif kind == "mlp":
        layers.feed_forward(parts, layers.MLP, tail, source.keys.whole("intermediate_size"), gated=False)
    else:
        _experts(source, parts, tail)


def _experts(source: Source, parts: Parts, tail: str) -> None:
    """Add experts without a gate, in a latent space where there is one."""
    keys = source.keys
    total, hidden, width = keys.whole("n_routed_experts"), keys.whole("hidden_size"), keys.optional("moe_latent_size")
    # GateLinear keeps such a router in float32 where it has no kernel of its own for it: on other GPUs than SM90 and SM10x.
    major = source.capability.partition(".")[0]
    form = None if source.capability == "9.0" or major == "10" else formats.TYPES["float32"]
    parts.plain(layers.ROUTER, total, hidden, form=form)
    layers.experts(parts, f"{tail}.experts", total, gated=False, width=width)
    if width:
        parts.add(layers.SHARED, f"{tail}.fc1_latent_proj", width, hidden)
        parts.add(layers.SHARED, f"{tail}.fc2_latent_proj", hidden, width)
    if shared := keys.stated("n_shared_experts"):
        inner = shared * keys.whole("moe_shared_expert_intermediate_size")
        layers.feed_forward(parts, layers.SHARED, f"{tail}.shared_experts", inner, gated=False)
