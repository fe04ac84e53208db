# SPDX-License-Identifier: Apache-2.0
"""Build models from their configurations, one function for each kind (`model_type`)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stack.serving import formats
from stack.serving.formats import Format
from stack.serving.shapes import layers
from stack.serving.shapes.keys import MOST, Keys
from stack.serving.shapes.layers import Parts
from stack.serving.shapes.model import Draft, Model, Split
from stack.serving.shapes.quantization import Quantization

_LAYERS = 1000
"""Most layers; each has names that are looked up in the checkpoint's lists."""
_SLIDING, _FULL, _LINEAR = "sliding_attention", "full_attention", "linear_attention"


@dataclass(frozen=True, slots=True)
class Source:
    """The input of a builder: keys, the checkpoint's formats, the model's own type, and the compute capability of the GPU.

    `tied`: the output head shares the embedding.
    """

    keys: Keys
    quantization: Quantization
    dense: Format
    capability: str
    tied: bool

    def parts(self, *prefixes: str) -> Parts:
        """Begin to collect layers whose names have one of these beginnings."""
        return Parts(self.keys, self.quantization.find, self.dense, prefixes)

    def layers(self) -> int:
        """Return the number of layers."""
        return self.keys.whole("num_hidden_layers", most=_LAYERS)

    def built(self, kind: str, parts: Parts, draft: Parts | None = None) -> Model:
        """Complete a model with its output head."""
        keys = self.keys
        layers.head(parts, tied=self.tied)
        longest = keys.optional("max_position_embeddings", least=1) or MOST
        keys.finish()
        made = Draft(tuple(draft.matrices), tuple(draft.caches)) if draft is not None else None
        matrices, caches, states = tuple(parts.matrices), tuple(parts.caches), tuple(parts.states)
        return Model(kind, longest, self.dense, matrices, caches, states, made, self.quantization.kv)


def _llama(source: Source) -> Model:
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
    types = keys.texts("layer_types", _LAYERS)
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


def _qwen_moe(source: Source) -> Model:
    """Build Qwen3-MoE, whose router can be quantized, and which has a shared expert only where its configuration says so."""
    keys, parts = source.keys, source.parts("model.")
    if _slides(keys):
        raise keys.error("sliding_window", "is set", "it is not counted for this kind of model")
    sparse = _sparse(source)
    for layer in range(source.layers()):
        layers.attention(parts, f"layers.{layer}.self_attn")
        _qwen_mlp(parts, f"layers.{layer}.mlp", sparse=sparse(layer), router=False)
    return source.built("qwen3_moe", parts)


def _qwen_next(source: Source) -> Model:
    """Build Qwen3-Next: linear attention in most layers, experts in all."""
    keys, parts = source.keys, source.parts("model.")
    sparse = _sparse(source)
    for layer, name in enumerate(_mixed_types(source)):
        _qwen_mixer(parts, f"layers.{layer}", name, fused=True)
        _qwen_mlp(parts, f"layers.{layer}.mlp", sparse=sparse(layer))
    # Its configuration does not mention the draft layer: vLLM's qwen3_next_mtp.py takes 1 where none is named.
    count = keys.optional("num_nextn_predict_layers")
    draft = _qwen_draft(source, sparse=True) if count is None or count else None
    return source.built("qwen3_next", parts, draft)


def _qwen_35(source: Source) -> Model:
    """Build Qwen3.5 and 3.6, dense or with experts in all layers."""
    keys = source.keys
    sparse = keys.text("model_type") == "qwen3_5_moe_text"
    parts = source.parts("model.language_model.", "language_model.model.", "model.")
    for layer, name in enumerate(_mixed_types(source)):
        _qwen_mixer(parts, f"layers.{layer}", name, fused=False)
        _qwen_mlp(parts, f"layers.{layer}.mlp", sparse=sparse)
    draft = _qwen_draft(source, sparse=sparse) if keys.optional("mtp_num_hidden_layers") else None
    return source.built(keys.text("model_type"), parts, draft)


def _sparse(source: Source) -> Callable[[int], bool]:
    """Return a function that says whether a layer has experts; else it is dense."""
    keys = source.keys
    dense, step = set(keys.wholes("mlp_only_layers", _LAYERS)), keys.optional("decoder_sparse_step", least=1) or 1
    return lambda layer: layer not in dense and (layer + 1) % step == 0


def _mixed_types(source: Source) -> tuple[str, ...]:
    """Return the kind of attention of each layer; without a list, every n-th layer is one of full attention."""
    keys, count = source.keys, source.layers()
    types, every = keys.texts("layer_types", _LAYERS), keys.optional("full_attention_interval", least=1)
    if not types:
        every = every or keys.whole("full_attention_interval")
        types = tuple(_FULL if (layer + 1) % every == 0 else _LINEAR for layer in range(count))
    if len(types) != count:
        raise keys.error("layer_types", f"has {len(types)} entries for {count} layers")
    if odd := {*types} - {_FULL, _LINEAR}:
        raise keys.error("layer_types", f"has {min(odd)!r:.40}", f"known are {_FULL} and {_LINEAR}")
    return types


def _qwen_mixer(parts: Parts, tail: str, name: str, *, fused: bool) -> None:
    if name == _FULL:
        layers.attention(parts, f"{tail}.self_attn", gated=parts.keys.flag("attn_output_gate", otherwise=True))
    else:
        layers.delta_net(parts, f"{tail}.linear_attn", fused=fused)


def _qwen_mlp(parts: Parts, tail: str, *, sparse: bool, router: bool = True) -> None:
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


def _qwen_draft(source: Source, *, sparse: bool) -> Parts:
    """Build the draft layer: a projection of two hidden states, a layer of full attention, and the model's own output head."""
    parts, hidden = source.parts("mtp."), source.keys.whole("hidden_size")
    parts.add(layers.ATTENTION, "fc", hidden, 2 * hidden, Split.ROWS)
    layers.attention(parts, "layers.0.self_attn", gated=source.keys.flag("attn_output_gate", otherwise=True))
    _qwen_mlp(parts, "layers.0.mlp", sparse=sparse)
    layers.head(parts, tied=source.tied)
    return parts


def _glm(source: Source) -> Model:
    """Build GLM-4-MoE-Lite: latent attention, dense layers first, then experts with shared ones."""
    keys, parts, count = source.keys, source.parts("model."), source.layers()
    first, step = keys.whole("first_k_dense_replace", least=0), keys.optional("moe_layer_freq", least=1) or 1
    for ignored in ("num_key_value_heads", "head_dim", "qk_head_dim"):
        keys.optional(ignored)  # latent attention has no use for them
    for layer in range(count):
        _glm_layer(parts, layer, sparse=layer >= first and layer % step == 0)
    draft = None
    if keys.optional("num_nextn_predict_layers"):
        draft, hidden = source.parts("model."), keys.whole("hidden_size")
        draft.plain(layers.ATTENTION, hidden, 2 * hidden)  # eh_proj is not quantized and not divided (glm4_moe_lite_mtp.py)
        _glm_layer(draft, count, sparse=True)
        form = draft.form(f"layers.{count}.shared_head.head", "head")
        draft.plain(layers.HEAD, keys.whole("vocab_size"), hidden, Split.ROWS, form)
    return source.built("glm4_moe_lite", parts, draft)


def _glm_layer(parts: Parts, layer: int, *, sparse: bool) -> None:
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


_NEMOTRON = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}
"""Kinds of layers by the letters of `hybrid_override_pattern`."""


def _nemotron(source: Source) -> Model:
    """Build Nemotron-H: each layer is one of Mamba, attention, experts, or a dense feed-forward layer."""
    keys, parts = source.keys, source.parts("backbone.", "model.")
    kinds = _nemotron_kinds(keys, "hybrid_override_pattern", "layers_block_type")
    if not 0 < len(kinds) <= _LAYERS:
        raise keys.error("hybrid_override_pattern", f"is missing, or has more than {_LAYERS} layers")
    if keys.given("num_hidden_layers") and len(kinds) != source.layers():
        raise keys.error("hybrid_override_pattern", f"has {len(kinds)} layers, num_hidden_layers says {source.layers()}")
    if keys.given("sliding_window"):
        raise keys.error("sliding_window", "is set", "it is not counted for this kind of model")
    for layer, kind in enumerate(kinds):
        _nemotron_layer(source, parts, f"layers.{layer}.mixer", kind)
    draft = None
    drafted = _nemotron_kinds(keys, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if keys.optional("num_nextn_predict_layers") and drafted:
        draft, hidden = source.parts("mtp."), keys.whole("hidden_size")
        draft.add(layers.ATTENTION, "layers.0.eh_proj", hidden, 2 * hidden, Split.ROWS)
        for layer, kind in enumerate(drafted):
            _nemotron_layer(source, draft, f"layers.{layer}.mixer", kind)
        layers.head(draft, tied=source.tied)
    return source.built("nemotron_h", parts, draft)


def _nemotron_kinds(keys: Keys, letters: str, words: str) -> tuple[str, ...]:
    """Read the kinds of layers, as letters or as words."""
    if not keys.given(letters):
        kinds = keys.texts(words, _LAYERS)
        if odd := {*kinds} - {*_NEMOTRON.values()}:
            raise keys.error(words, f"has {min(odd)!r:.40}", f"known are {', '.join(_NEMOTRON.values())}")
        return kinds
    pattern = keys.text(letters)
    if odd := {*pattern} - {*_NEMOTRON}:
        raise keys.error(letters, f"has {min(odd)!r:.40}", f"known are {' '.join(_NEMOTRON)}")
    keys.given(words)
    return tuple(_NEMOTRON[letter] for letter in pattern[: _LAYERS + 1])


def _nemotron_layer(source: Source, parts: Parts, tail: str, kind: str) -> None:
    if kind == "mamba":
        layers.mamba(parts, tail)
    elif kind == "attention":
        layers.attention(parts, tail)
    elif kind == "mlp":
        layers.feed_forward(parts, layers.MLP, tail, source.keys.whole("intermediate_size"), gated=False)
    else:
        _nemotron_experts(source, parts, tail)


def _nemotron_experts(source: Source, parts: Parts, tail: str) -> None:
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


BUILDERS: dict[str, Callable[[Source], Model]] = {
    "llama": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "qwen3_moe": _qwen_moe,
    "qwen3_next": _qwen_next,
    "qwen3_5_text": _qwen_35,
    "qwen3_5_moe_text": _qwen_35,
    "glm4_moe_lite": _glm,
    "nemotron_h": _nemotron,
}
"""Builders by `model_type`."""
WRAPPERS = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
"""Kinds with images, and the kind of the text model inside of them (`text_config`)."""
