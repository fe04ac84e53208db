# SPDX-License-Identifier: Apache-2.0
"""Small configurations of each kind of model, with the keys of the published ones."""

import copy
from typing import Any

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_scaling": {"factor": 8.0},
    "pretraining_tp": 1,
}
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "intermediate_size": 768,
    "moe_intermediate_size": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 40960,
    "sliding_window": None,
    "use_sliding_window": False,
    "max_window_layers": 48,
    "torch_dtype": "bfloat16",
}
_LINEAR: dict[str, Any] = {
    "head_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 32,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "full_attention_interval": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 262144,
}
QWEN3_NEXT: dict[str, Any] = {
    **_LINEAR,
    "model_type": "qwen3_next",
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "torch_dtype": "bfloat16",
}
QWEN35: dict[str, Any] = {
    "model_type": "qwen3_5",
    "tie_word_embeddings": False,
    "vision_config": {"hidden_size": 1152, "num_heads": 16},
    "text_config": {
        **_LINEAR,
        "model_type": "qwen3_5_text",
        "intermediate_size": 512,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "dtype": "bfloat16",
    },
}
GLM: dict[str, Any] = {
    "model_type": "glm4_moe_lite",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 48,
    "qk_rope_head_dim": 16,
    "v_head_dim": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
    "vocab_size": 1024,
    "max_position_embeddings": 202752,
    "dtype": "bfloat16",
}
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "ME*E-",
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "conv_kernel": 4,
    "ssm_state_size": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 32,
    "n_groups": 4,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 128,
    "moe_latent_size": 64,
    "moe_shared_expert_intermediate_size": 256,
    "num_nextn_predict_layers": 1,
    "mtp_hybrid_override_pattern": "*E",
    "expand": 2,
    "chunk_size": 128,
    "vocab_size": 1024,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
}
ALL = (LLAMA, QWEN3_MOE, QWEN3_NEXT, QWEN35, GLM, NEMOTRON)


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A copy with other values; None leaves a key out. Keys of a text model are changed there."""
    made = copy.deepcopy(config)
    place = made.get("text_config", made)
    for key, value in changes.items():
        target = made if key == "quantization_config" else place
        target.pop(key, None)
        if value is not None:
            target[key] = value
    return made
