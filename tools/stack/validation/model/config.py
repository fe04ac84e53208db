# SPDX-License-Identifier: Apache-2.0
"""The parts of gpt-oss's config.json that hold for every size: for our tiny model, and for real dimensions with dummy weights."""

from typing import Any

VOCABULARY = 201088
"""Number of tokens in the vocabulary."""
THETA = 150000.0
"""The base of the rotary embedding."""
COMMON: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "vocab_size": VOCABULARY,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "attention_bias": True,
    "hidden_act": "silu",
    "swiglu_limit": 7.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 131072,
    "initial_context_length": 4096,
    "rope_theta": THETA,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "tie_word_embeddings": False,
    "eos_token_id": 200002,
    "pad_token_id": 199999,
}
MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
}
"""The `quantization_config` of a checkpoint whose experts are in MXFP4."""
