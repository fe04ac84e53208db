# SPDX-License-Identifier: Apache-2.0
"""Build GLM-4-MoE-Lite (GLM Flash): latent attention, and experts with shared ones."""

from stack.deploy import formats
from stack.deploy.shapes import layers, quantization
from stack.deploy.shapes.layers import Parts
from stack.deploy.shapes.model import Model, Split
from stack.deploy.shapes.source import Source


def glm(source: Source) -> Model:
    """Build GLM-4-MoE-Lite: latent attention, dense layers first, then experts with shared ones."""
    keys, parts, count = source.keys, source.parts("model."), source.layers()
    first, step = keys.whole("first_k_dense_replace", least=0), keys.optional("moe_layer_freq", least=1) or 1
    for ignored in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        keys.optional(ignored)  # latent attention has no use for them
    for layer in range(count):
        _layer(parts, layer, sparse=layer >= first and layer % step == 0)
    draft = None
    if keys.optional("num_nextn_predict_layers"):
        draft, hidden = source.parts("model."), keys.whole("hidden_size")
        draft.plain(layers.ATTENTION, hidden, 2 * hidden)  # eh_proj is not quantized and not divided (glm4_moe_lite_mtp.py)
        _layer(draft, count, sparse=True)
        form = draft.form(f"layers.{count}.shared_head.head", quantization.HEAD)
        draft.plain(layers.HEAD, keys.whole("vocab_size"), hidden, Split.ROWS, form)
    return source.built("glm4_moe_lite", parts, draft)


def _layer(parts: Parts, layer: int, *, sparse: bool) -> None:
    keys, tail = parts.keys, f"layers.{layer}"
    layers.latent(parts, f"{tail}.self_attn")
    if not sparse:
        layers.feed_forward(parts, layers.MLP, f"{tail}.mlp", keys.whole("intermediate_size"))
        return
    total = keys.whole("n_routed_experts")
    layers.experts(parts, f"{tail}.mlp.experts", total)
    # Glm4MoE keeps its router in float32.
    parts.plain(layers.ROUTER, total, keys.whole("hidden_size"), form=formats.TYPES["float32"])
    if shared := keys.stated("n_shared_experts"):
        layers.feed_forward(parts, layers.SHARED, f"{tail}.mlp.shared_experts", shared * keys.whole("moe_intermediate_size"))
