# SPDX-License-Identifier: Apache-2.0
"""The kinds of layers: which matrices, caches and states each has, with the names that they have in checkpoints.

Extents and splits are those of vLLM's model_executor: models/qwen3_next.py, qwen3_moe.py, llama.py, deepseek_v2.py (MLA), nemotron_h.py,
and layers/mamba. Left out, as for gpt-oss: biases, norms, and a row of the embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from stack.deploy import formats
from stack.deploy.formats import Format
from stack.deploy.shapes import quantization
from stack.deploy.shapes.keys import Keys
from stack.deploy.shapes.model import Cache, Matrix, Split, State
from stack.deploy.shapes.quantization import Find

EXPERTS, SHARED, MLP, ATTENTION, LINEAR, MAMBA, HEAD, ROUTER = (
    *("experts", "shared experts", "MLP", "attention", "linear attention", "Mamba", "lm_head", "router"),
)
"""Components, in the words of the table."""
_STATE_TYPES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a value of a state."""


@dataclass(slots=True)
class Parts:
    """Collects what a model's layers read. `prefixes`: the beginnings that the names of its layers may have."""

    keys: Keys
    find: Find
    dense: Format
    prefixes: Sequence[str]
    matrices: list[Matrix] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    def form(self, tail: str, kind: str = quantization.LINEAR) -> Format:
        """Return the format of a layer, by the end of its name."""
        return self.find([f"{prefix}{tail}" for prefix in self.prefixes], kind)

    def add(self, component: str, tail: str, rows: int, columns: int, split: Split = Split.WHOLE, *, heads: int = 0) -> None:
        """Add a matrix that every token reads."""
        self.matrices.append(Matrix(component, self.form(tail), rows, columns, split, heads))

    def plain(self, component: str, rows: int, columns: int, split: Split = Split.WHOLE, form: Format | None = None) -> None:
        """Add a matrix that is never quantized."""
        self.matrices.append(Matrix(component, form or self.dense, rows, columns, split))


def attention(parts: Parts, tail: str, *, gated: bool = False, window: int | None = None, head_dim: int | None = None) -> None:
    """Add attention with grouped queries; with an output gate, queries have twice the outputs."""
    keys = parts.keys
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    kv_heads = keys.whole("num_key_value_heads")
    size = head_dim or keys.whole("head_dim")
    parts.add(ATTENTION, f"{tail}.q_proj", heads * size * (2 if gated else 1), hidden, Split.ROWS)
    for name in ("k_proj", "v_proj"):
        parts.add(ATTENTION, f"{tail}.{name}", kv_heads * size, hidden, Split.ROWS, heads=kv_heads)
    parts.add(ATTENTION, f"{tail}.o_proj", hidden, heads * size, Split.COLUMNS)
    parts.caches.append(Cache(2 * size, kv_heads, window))


def latent(parts: Parts, tail: str) -> None:
    """Add latent attention (MLA). Decoding absorbs `kv_b_proj` into queries and outputs, in the model's own type."""
    keys = parts.keys
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    nope, rope = keys.whole("qk_nope_head_dim"), keys.whole("qk_rope_head_dim")
    rank, value = keys.whole("kv_lora_rank"), keys.whole("v_head_dim")
    queries = keys.stated("q_lora_rank")
    parts.add(ATTENTION, f"{tail}.kv_a_proj_with_mqa", rank + rope, hidden)
    if queries:
        parts.add(ATTENTION, f"{tail}.q_a_proj", queries, hidden)
        parts.add(ATTENTION, f"{tail}.q_b_proj", heads * (nope + rope), queries, Split.ROWS)
    else:
        parts.add(ATTENTION, f"{tail}.q_proj", heads * (nope + rope), hidden, Split.ROWS)
    parts.plain(ATTENTION, heads * (nope + value), rank, Split.ROWS)
    parts.add(ATTENTION, f"{tail}.o_proj", hidden, heads * value, Split.COLUMNS)
    parts.caches.append(Cache(rank + rope))


def delta_net(parts: Parts, tail: str, *, fused: bool) -> None:
    """Add a gated delta net (GDN); `fused`: its checkpoint has one matrix for queries, keys, values and gates (Qwen3-Next)."""
    keys = parts.keys
    hidden, kernel = keys.whole("hidden_size"), keys.whole("linear_conv_kernel_dim")
    key_heads, value_heads = keys.whole("linear_num_key_heads"), keys.whole("linear_num_value_heads")
    key_size, value_size = keys.whole("linear_key_head_dim"), keys.whole("linear_value_head_dim")
    queries, values = key_heads * key_size, value_heads * value_size
    mixed = 2 * queries + values
    if fused:
        parts.add(LINEAR, f"{tail}.in_proj_qkvz", mixed + values, hidden, Split.ROWS)
        parts.add(LINEAR, f"{tail}.in_proj_ba", 2 * value_heads, hidden, Split.ROWS)
    else:
        parts.add(LINEAR, f"{tail}.in_proj_qkv", mixed, hidden, Split.ROWS)
        parts.add(LINEAR, f"{tail}.in_proj_z", values, hidden, Split.ROWS)
        for name in ("in_proj_b", "in_proj_a"):
            parts.add(LINEAR, f"{tail}.{name}", value_heads, hidden, Split.ROWS)
    parts.plain(LINEAR, mixed, kernel, Split.ROWS)
    parts.add(LINEAR, f"{tail}.out_proj", hidden, values, Split.COLUMNS)
    # Only for Qwen3.5 does vLLM take the type of the state from the configuration (models/config.py).
    kept = parts.dense.bits // 8 if fused else _state_bytes(parts, "mamba_ssm_dtype", parts.dense)
    parts.states.append(State(key_heads, _conv(parts, mixed, kernel) + value_heads * value_size * key_size * kept))


def mamba(parts: Parts, tail: str) -> None:
    """Add a Mamba-2 layer of Nemotron-H."""
    keys = parts.keys
    hidden, kernel, state = keys.whole("hidden_size"), keys.whole("conv_kernel"), keys.whole("ssm_state_size")
    heads, size, groups = keys.whole("mamba_num_heads"), keys.whole("mamba_head_dim"), keys.whole("n_groups")
    inner = heads * size
    mixed = inner + 2 * groups * state
    parts.add(MAMBA, f"{tail}.in_proj", inner + mixed + heads, hidden, Split.ROWS)
    parts.plain(MAMBA, mixed, kernel, Split.ROWS)
    parts.add(MAMBA, f"{tail}.out_proj", hidden, inner, Split.COLUMNS)
    kept = _state_bytes(parts, "mamba_ssm_cache_dtype", formats.TYPES["float32"])
    parts.states.append(State(groups, _conv(parts, mixed, kernel) + inner * state * kept))


def feed_forward(parts: Parts, component: str, tail: str, inner: int, *, gated: bool = True) -> None:
    """Add a dense feed-forward layer: up and down, and a gate beside up."""
    hidden = parts.keys.whole("hidden_size")
    for name in ("gate_proj", "up_proj") if gated else ("up_proj",):
        parts.add(component, f"{tail}.{name}", inner, hidden, Split.ROWS)
    parts.add(component, f"{tail}.down_proj", hidden, inner, Split.COLUMNS)


def experts(parts: Parts, tail: str, total: int, *, gated: bool = True, width: int | None = None) -> None:
    """Add routed experts; `width`: their inputs and outputs, if these are not the model's own."""
    keys = parts.keys
    hidden, inner, chosen = (
        width or keys.whole("hidden_size"),
        keys.whole("moe_intermediate_size"),
        keys.whole("num_experts_per_tok"),
    )
    if chosen > total:
        raise keys.error("num_experts_per_tok", f"is {chosen}, and there are {total} experts")
    projections = (("gate_proj", "up_proj") if gated else ("up_proj",), ("down_proj",))
    for names, (rows, columns, split) in zip(
        projections, ((inner, hidden, Split.ROWS), (hidden, inner, Split.COLUMNS)), strict=True
    ):
        for name in names:
            tails = (f"{tail}.0.{name}", tail)
            form = parts.find([f"{prefix}{end}" for prefix in parts.prefixes for end in tails], quantization.EXPERTS)
            parts.matrices.append(Matrix(EXPERTS, form, rows, columns, split, 0, total, chosen))


def head(parts: Parts, *, tied: bool) -> None:
    """Add the output head; one that shares the embedding is as the embedding, which is not quantized."""
    keys = parts.keys
    rows = -(-keys.whole("vocab_size") // _VOCABULARY) * _VOCABULARY
    names = ["lm_head", "language_model.lm_head", "model.lm_head"]
    form = parts.dense if tied else parts.find(names, quantization.HEAD)
    parts.matrices.append(Matrix(HEAD, form, rows, keys.whole("hidden_size"), Split.ROWS))


_VOCABULARY = 64
"""vLLM pads vocabularies to a multiple of this (vocab_parallel_embedding.py)."""


def _conv(parts: Parts, width: int, kernel: int) -> int:
    """Return the bytes of a convolution's state, which is in the model's own type."""
    return width * (kernel - 1) * parts.dense.bits // 8


def _state_bytes(parts: Parts, key: str, otherwise: Format) -> int:
    """Return the bytes of a value of a state, of the type that the configuration names."""
    if not parts.keys.given(key):
        return otherwise.bits // 8
    named = parts.keys.text(key)
    if named not in _STATE_TYPES:
        raise parts.keys.error(key, f"is {named!r:.40}", f"known are {', '.join(_STATE_TYPES)}")
    return _STATE_TYPES[named]
