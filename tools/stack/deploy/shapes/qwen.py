# SPDX-License-Identifier: Apache-2.0
"""Build Llama and the models of the Qwen family, from Qwen2 to Qwen3.6."""

from collections.abc import Callable, Iterable

from stack.deploy.shapes import layers
from stack.deploy.shapes.keys import Keys
from stack.deploy.shapes.layers import Parts
from stack.deploy.shapes.model import Model, Split
from stack.deploy.shapes.source import LAYERS, Source

_SLIDING, _FULL, _LINEAR = "sliding_attention", "full_attention", "linear_attention"


def llama(source: Source) -> Model:
    """Build Llama, Qwen2 or Qwen3: dense, attention in every layer."""
    keys, parts = source.keys, source.parts("model.")
    size = keys.optional("head_dim", least=1) or keys.whole("hidden_size") // keys.whole("num_attention_heads")
    for layer, window in enumerate(_windows(source)):
        layers.attention(parts, f"layers.{layer}.self_attn", window=window, head_dim=size)
        layers.feed_forward(parts, layers.MLP, f"layers.{layer}.mlp", keys.whole("intermediate_size"))
    return source.built(keys.text("model_type"), parts)


def _windows(source: Source) -> Iterable[int | None]:
    """Yield each layer's sliding window, None for full attention."""
    keys, count = source.keys, source.layers()
    types = keys.texts("layer_types", LAYERS)
    if not types and _slides(keys):
        raise keys.error("layer_types", "is missing, and there is a sliding window")
    if types and len(types) != count:
        raise keys.error("layer_types", f"has {len(types)} entries for {count} layers")
    for name in types or (_FULL,) * count:
        if name not in (_FULL, _SLIDING):
            raise keys.error("layer_types", f"has {name!r:.40}", f"known are {_FULL} and {_SLIDING}")
        yield keys.whole("sliding_window") if name == _SLIDING else None


def _slides(keys: Keys) -> bool:
    """Return whether a configuration without `layer_types` has a sliding window; `use_sliding_window` switches it."""
    return keys.flag("use_sliding_window", otherwise=keys.given("sliding_window")) and keys.given("sliding_window")


def qwen_moe(source: Source) -> Model:
    """Build Qwen3-MoE, whose router can be quantized, and which has a shared expert only where its configuration says so."""
    keys, parts = source.keys, source.parts("model.")
    if _slides(keys):
        raise keys.error("sliding_window", "is set", "it is not counted for this kind of model")
    sparse = _sparse(source)
    for layer in range(source.layers()):
        layers.attention(parts, f"layers.{layer}.self_attn")
        _mlp(parts, f"layers.{layer}.mlp", sparse=sparse(layer), router=False)
    return source.built("qwen3_moe", parts)


def qwen_next(source: Source) -> Model:
    """Build Qwen3-Next: linear attention in most layers, experts in all."""
    keys, parts = source.keys, source.parts("model.")
    sparse = _sparse(source)
    for layer, name in enumerate(_mixed_types(source)):
        _mixer(parts, f"layers.{layer}", name, fused=True)
        _mlp(parts, f"layers.{layer}.mlp", sparse=sparse(layer))
    # Its configuration does not mention the draft layer: vLLM's qwen3_next_mtp.py takes 1 where none is named.
    count = keys.optional("num_nextn_predict_layers")
    draft = _draft(source, sparse=True) if count is None or count else None
    return source.built("qwen3_next", parts, draft)


def qwen_35(source: Source) -> Model:
    """Build Qwen3.5 and 3.6, dense or with experts in all layers."""
    keys = source.keys
    sparse = keys.text("model_type") == "qwen3_5_moe_text"
    parts = source.parts("model.language_model.", "language_model.model.", "model.")
    for layer, name in enumerate(_mixed_types(source)):
        _mixer(parts, f"layers.{layer}", name, fused=False)
        _mlp(parts, f"layers.{layer}.mlp", sparse=sparse)
    draft = _draft(source, sparse=sparse) if keys.optional("mtp_num_hidden_layers") else None
    return source.built(keys.text("model_type"), parts, draft)


def _sparse(source: Source) -> Callable[[int], bool]:
    """Return a function that says whether a layer has experts; else it is dense."""
    keys = source.keys
    dense, step = set(keys.wholes("mlp_only_layers", LAYERS)), keys.optional("decoder_sparse_step", least=1) or 1
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def _mixed_types(source: Source) -> tuple[str, ...]:
    """Return the kind of attention of each layer; without a list, every n-th layer is one of full attention."""
    keys, count = source.keys, source.layers()
    types, every = keys.texts("layer_types", LAYERS), keys.optional("full_attention_interval", least=1)
    if not types:
        every = every or keys.whole("full_attention_interval")
        types = tuple(_FULL if (layer + 1) % every == 0 else _LINEAR for layer in range(count))
    if len(types) != count:
        raise keys.error("layer_types", f"has {len(types)} entries for {count} layers")
    if odd := {*types} - {_FULL, _LINEAR}:
        raise keys.error("layer_types", f"has {min(odd)!r:.40}", f"known are {_FULL} and {_LINEAR}")
    return types


def _mixer(parts: Parts, tail: str, name: str, *, fused: bool) -> None:
    if name == _FULL:
        layers.attention(parts, f"{tail}.self_attn", gated=parts.keys.flag("attn_output_gate", otherwise=True))
    else:
        layers.delta_net(parts, f"{tail}.linear_attn", fused=fused)


def _mlp(parts: Parts, tail: str, *, sparse: bool, router: bool = True) -> None:
    """Add experts with their router and a shared expert, or a dense layer. `router`: it is never quantized (not for Qwen3-MoE)."""
    keys = parts.keys
    if not sparse:
        layers.feed_forward(parts, layers.MLP, tail, keys.whole("intermediate_size"))
        return
    total, hidden = keys.whole("num_experts"), keys.whole("hidden_size")
    layers.experts(parts, f"{tail}.experts", total)
    if router:
        parts.plain(layers.ROUTER, total, hidden)
    else:
        parts.add(layers.ROUTER, f"{tail}.gate", total, hidden)
    size = "shared_expert_intermediate_size"
    if inner := keys.stated(size) if router else keys.optional(size):
        layers.feed_forward(parts, layers.SHARED, f"{tail}.shared_expert", inner)
        parts.plain(layers.ROUTER, 1, hidden)


def _draft(source: Source, *, sparse: bool) -> Parts:
    """Build the draft layer: a projection of two hidden states, a layer of full attention, and the model's own output head."""
    parts, hidden = source.parts("mtp."), source.keys.whole("hidden_size")
    parts.add(layers.ATTENTION, "fc", hidden, 2 * hidden, Split.ROWS)
    layers.attention(parts, "layers.0.self_attn", gated=source.keys.flag("attn_output_gate", otherwise=True))
    _mlp(parts, "layers.0.mlp", sparse=sparse)
    layers.head(parts, tied=source.tied)
    return parts
