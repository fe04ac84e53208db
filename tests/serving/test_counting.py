# SPDX-License-Identifier: Apache-2.0
"""Bytes by hand for each kind of model, written out; and what holds for any."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.deploy import formats
from stack.deploy.formats import BF16, Format
from stack.deploy.shapes import config_file
from stack.deploy.shapes.model import Model
from stack.serving import counting

from ..deploy.shapes.configs import ALL, GLM, LLAMA, NEMOTRON, QWEN3_MOE, QWEN3_NEXT, QWEN35, changed

FP8 = formats.CACHED["fp8"]


def model(config: dict[str, Any], capability: str = "12.1") -> Model:
    return config_file.model(config, "config.json", capability)


def count(
    config: dict[str, Any], *, nodes: int = 1, context: int = 100, batch: int = 1, drafts: int = 0, kv: Format = BF16
) -> dict[str, float]:
    return {part.name: part.size for part in counting.of(model(config), kv, nodes, context, batch, drafts)}


def test_llama() -> None:
    """Two layers; heads of 256 / 8 = 32; 1000 words are padded to 1024."""
    assert count(LLAMA) == {
        # q and o: 256 x 256, k and v: 64 x 256, in 2 bytes
        "attention": 2 * 2 * (256 * 256 + 64 * 256 + 64 * 256 + 256 * 256),
        "MLP": 2 * 2 * 3 * 512 * 256,
        "lm_head": 2 * 1024 * 256,
        # keys and values of 2 heads of 32
        "KV": 2 * 100 * 2 * 2 * 32 * 2,
    }
    # Two nodes: everything is halved. Four: two KV heads are copied, so k and v stay 32 wide.
    assert count(LLAMA, nodes=2) == {name: size / 2 for name, size in count(LLAMA).items()}
    four = count(LLAMA, nodes=4)
    assert four["attention"] == 2 * 2 * (64 * 256 + 32 * 256 + 32 * 256 + 256 * 64)
    assert four["KV"] == 2 * 100 * 2 * 1 * 32 * 2


def test_sliding_windows() -> None:
    types = ["sliding_attention", "full_attention"]
    config = changed(LLAMA, layer_types=types, sliding_window=16)
    assert count(config)["KV"] == (16 + 100) * 2 * 2 * 32 * 2
    assert count(config, context=10)["KV"] == 2 * 10 * 2 * 2 * 32 * 2


def test_qwen3_moe_with_experts_in_nvfp4() -> None:
    quantized = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "group_size": 16,
        "ignore": ["lm_head", "model.layers.*.self_attn*", "model.layers.*.mlp.gate"],
    }
    one = count(changed(QWEN3_MOE, quantization_config=quantized))
    # A matrix of 64 x 256: half a byte a value, and a byte for each 16.
    matrix = 64 * 256 // 2 + 64 * 256 // 16
    assert one == {
        "attention": 2 * 2 * (512 * 256 + 128 * 256 + 128 * 256 + 256 * 512),
        "experts": 2 * 4 * 3 * matrix,
        "router": 2 * 2 * 16 * 256,
        "lm_head": 2 * 1024 * 256,
        "KV": 2 * 100 * 2 * 2 * 64 * 2,
    }
    # Two requests: of 16 experts, 2 x 4 random choices are 16 * (1 - (12/16)^2) = 7 in the mean.
    two = count(changed(QWEN3_MOE, quantization_config=quantized), batch=2)
    assert two["experts"] == pytest.approx(2 * 7 * 3 * matrix)
    assert two["attention"] == one["attention"]
    assert two["KV"] == 2 * one["KV"]


def test_qwen3_next() -> None:
    """Three layers of linear attention, one of full attention; experts and a shared one in all."""
    # queries and keys: 4 x 32 = 128, values and gates: 8 x 32 = 256; q, k, v, z are 768 rows, b and a 16.
    linear = 768 * 256 + 16 * 256 + 512 * 4 + 256 * 256
    # With an output gate, queries are 2 x 4 x 64 rows.
    full = 512 * 256 + 128 * 256 + 128 * 256 + 256 * 256
    # A convolution keeps 3 x 512 values of 2 bytes; the state is 8 x 32 x 32 in the model's own type. Both are read and written.
    state = 2 * (3 * 512 * 2 + 8 * 32 * 32 * 2)
    assert count(QWEN3_NEXT) == {
        "linear attention": 2 * 3 * linear,
        "attention": 2 * full,
        "experts": 2 * 4 * 4 * 3 * 64 * 256,
        # the router, and the row that weighs the shared expert
        "router": 2 * 4 * (16 * 256 + 256),
        "shared experts": 2 * 4 * 3 * 64 * 256,
        "lm_head": 2 * 1024 * 256,
        "state": 3 * state,
        "KV": 100 * 2 * 2 * 64 * 2,
    }


def test_qwen35_with_drafts() -> None:
    # As Qwen3-Next, but dense, and the state in float32.
    linear = 768 * 256 + 16 * 256 + 512 * 4 + 256 * 256
    full = 512 * 256 + 128 * 256 + 128 * 256 + 256 * 256
    mlp = 3 * 512 * 256
    without = {
        "linear attention": 2 * 3 * linear,
        "attention": 2 * full,
        "MLP": 2 * 4 * mlp,
        "lm_head": 2 * 1024 * 256,
        "state": 3 * 2 * (3 * 512 * 2 + 8 * 32 * 32 * 4),
        "KV": 100 * 2 * 2 * 64,
    }
    assert count(QWEN35, kv=FP8) == without
    # Each of three drafts reads the projection of two hidden states, a layer of full attention with its cache, and the output head.
    draft = 256 * 512 + full + mlp + 1024 * 256
    assert count(QWEN35, kv=FP8, drafts=3) == {**without, "drafts": 3 * 2 * draft, "KV": 4 * without["KV"]}


def test_glm_with_latent_attention() -> None:
    # kv_a, q_a, q_b, the absorbed kv_b, o
    attention = 80 * 256 + 96 * 256 + 4 * 64 * 96 + 4 * 112 * 64 + 256 * 256
    assert count(GLM) == {
        "attention": 3 * 2 * attention,
        "MLP": 2 * 3 * 512 * 256,
        "experts": 2 * 2 * 2 * 3 * 64 * 256,
        # two routers in float32
        "router": 2 * 4 * 8 * 256,
        "shared experts": 2 * 2 * 3 * 64 * 256,
        "lm_head": 2 * 1024 * 256,
        # one latent vector of 64 + 16 for keys and values
        "KV": 3 * 100 * 80 * 2,
    }
    # Of two nodes, each reads the whole cache, and the projections into the latent space.
    two = count(GLM, nodes=2)
    assert two["KV"] == count(GLM)["KV"]
    assert two["attention"] == 3 * 2 * (80 * 256 + 96 * 256 + (4 * 64 * 96 + 4 * 112 * 64 + 256 * 256) // 2)
    # Drafts: the projection, an attention and experts layer, and an output head of its own, each for two drafts.
    draft = 2 * (256 * 512 + attention + 3 * 3 * 64 * 256 + 1024 * 256) + 4 * 8 * 256
    assert count(GLM, drafts=2)["drafts"] == 2 * draft


def test_nemotron() -> None:
    """Mamba, experts, attention, experts, dense."""
    # inner 8 x 32 = 256; the convolution has 256 + 2 x 4 x 16 = 384 channels; in: 256 + 384 + 8 rows
    mamba = 648 * 256 + 384 * 4 + 256 * 256
    assert count(NEMOTRON) == {
        "Mamba": 2 * mamba,
        "router": 2 * 4 * 16 * 256,
        # up and down of 128 in a latent space of 64, without a gate
        "experts": 2 * 2 * 4 * 2 * 128 * 64,
        # the projections into the latent space and back, and the shared expert of 256
        "shared experts": 2 * 2 * (2 * 64 * 256 + 2 * 256 * 256),
        "attention": 2 * (256 * 256 + 64 * 256 + 64 * 256 + 256 * 256),
        "MLP": 2 * 2 * 128 * 256,
        "lm_head": 2 * 1024 * 256,
        "state": 2 * (3 * 384 * 2 + 256 * 16 * 4),
        "KV": 100 * 2 * 2 * 32 * 2,
    }
    # On an H100 vLLM has a router kernel for BF16.
    on_h100 = counting.of(model(NEMOTRON, "9.0"), BF16, 1, 100, 1)
    assert next(part.size for part in on_h100 if part.name == "router") == 2 * 2 * 16 * 256


def test_expected_tokens() -> None:
    assert counting.expected(0, 0.7) == 1
    assert counting.expected(3, 0) == 1
    assert counting.expected(3, 1) == 4
    assert counting.expected(2, 0.5) == 1 + 0.5 + 0.25


CONFIGS = st.sampled_from(ALL)
CONTEXTS = st.integers(0, 8192)
BATCHES = st.integers(1, 64)


@given(CONFIGS, CONTEXTS, CONTEXTS, BATCHES)
def test_bytes_grow_with_the_context(config: dict[str, Any], one: int, other: int, batch: int) -> None:
    less, more = (count(config, context=context, batch=batch) for context in sorted((one, other)))
    assert less.pop("KV") <= more.pop("KV")
    assert less == more


@given(CONFIGS, CONTEXTS, BATCHES, BATCHES, st.integers(0, 4))
def test_bytes_grow_with_requests_and_drafts(config: dict[str, Any], context: int, one: int, other: int, drafts: int) -> None:
    less, more = (count(config, context=context, batch=batch, drafts=drafts) for batch in sorted((one, other)))
    assert all(less[name] <= more[name] for name in less)
    # A request more never costs more than the first one did.
    assert sum(more.values()) <= max(one, other) * sum(count(config, context=context, drafts=drafts).values()) * (1 + 1e-9)
    assert sum(count(config, context=context, batch=one).values()) <= sum(less.values()) or one > other


@given(CONFIGS, CONTEXTS, BATCHES)
def test_nodes_share(config: dict[str, Any], context: int, batch: int) -> None:
    alone, both = (count(config, nodes=nodes, context=context, batch=batch) for nodes in (1, 2))
    assert all(alone[name] / 2 <= both[name] * (1 + 1e-9) and both[name] <= alone[name] for name in alone)
    split = {"MLP", "experts", "lm_head", "Mamba", "linear attention", "state"} & {*alone}
    assert all(both[name] == pytest.approx(alone[name] / 2) for name in split)


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_nodes_that_cannot_share(nodes: int) -> None:
    for config in ALL:
        with pytest.raises(StackError, match=f"cannot be divided among {nodes} nodes"):
            count(config, nodes=nodes)
