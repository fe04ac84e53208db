# SPDX-License-Identifier: Apache-2.0
"""A checkpoint in gpt-oss's layout, small enough for a CPU, and vLLM configured for it as its command line would be."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import mxfp4
import pytest
import support
import torch
from safetensors.torch import save_file

with support.quiet():
    import vllm.model_executor.models.gpt_oss  # noqa: F401  (here, before a test fakes a platform)
    import vllm.model_executor.models.registry as registry
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        destroy_distributed_environment,
        destroy_model_parallel,
        init_distributed_environment,
        initialize_model_parallel,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

CONFIG = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "torch_dtype": "bfloat16",
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
}
EXPERTS = 4
HEAD_DIM = 32
ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"


def write_checkpoint(
    folder: Path,
    vocabulary: int,
    *,
    hidden: int = 64,
    intermediate: int = 64,
    layers: int = 0,
    experts: bool = True,
    **config: Any,
) -> dict[str, torch.Tensor]:
    """Write a checkpoint with no layer or one, with or without experts, random weights; return them as they are stored."""
    generator = torch.Generator().manual_seed(vocabulary)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    weights = {
        "model.embed_tokens.weight": normal(vocabulary, hidden),
        "model.norm.weight": torch.ones(hidden).bfloat16(),
        "lm_head.weight": normal(vocabulary, hidden),
    }
    if layers:
        weights |= _attention(normal, hidden) | (_experts(normal, hidden, intermediate) if experts else {})
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "model.safetensors")
    sizes = {"vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": intermediate}
    depth = {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(CONFIG | sizes | depth | config))
    return weights


def _attention(normal: Any, hidden: int) -> dict[str, torch.Tensor]:
    sizes = {"q": 2 * HEAD_DIM, "k": HEAD_DIM, "v": HEAD_DIM}
    layer = {f"model.layers.0.{name}_layernorm.weight": torch.ones(hidden).bfloat16() for name in ("input", "post_attention")}
    for name, size in sizes.items():
        layer[f"{ATTENTION}.{name}_proj.weight"] = normal(size, hidden)
        layer[f"{ATTENTION}.{name}_proj.bias"] = normal(size)
    layer[f"{ATTENTION}.o_proj.weight"] = normal(hidden, 2 * HEAD_DIM)
    layer[f"{ATTENTION}.o_proj.bias"] = normal(hidden)
    layer[f"{ATTENTION}.sinks"] = normal(2)
    return layer


def _experts(normal: Any, hidden: int, intermediate: int) -> dict[str, torch.Tensor]:
    layer = {f"{MLP}.router.weight": normal(EXPERTS, hidden), f"{MLP}.router.bias": normal(EXPERTS)}
    for name, rows, columns in (("gate_up", 2 * intermediate, hidden), ("down", hidden, intermediate)):
        packed, scales = zip(*(mxfp4.quantize(normal(rows, columns)) for _ in range(EXPERTS)), strict=True)
        layer[f"{MLP}.experts.{name}_proj_blocks"] = torch.stack(packed).reshape(EXPERTS, rows, -1, 16)
        layer[f"{MLP}.experts.{name}_proj_scales"] = torch.stack(scales)
        layer[f"{MLP}.experts.{name}_proj_bias"] = normal(EXPERTS, rows)
    return layer


@contextmanager
def inspected_here() -> Iterator[None]:
    """Let vLLM look at the model's class in this process.

    It would start another one, which imports vLLM once more, to keep CUDA out of this one; there is no CUDA here.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "_run_in_subprocess", lambda inspect: inspect())
        yield


@functools.cache
def _parser() -> FlexibleArgumentParser:
    return EngineArgs.add_cli_args(FlexibleArgumentParser())


@contextmanager
def configured(folder: Path, store: Path, *arguments: str) -> Iterator[VllmConfig]:
    """From a command line to a configuration that is in force in the block, on one rank."""
    line = ["--model", str(folder), "--skip-tokenizer-init", "--enforce-eager", *arguments]
    with inspected_here():
        config = EngineArgs.from_cli_args(_parser().parse_args(line)).create_engine_config()
    with ExitStack() as stack:
        stack.enter_context(set_current_vllm_config(config))
        init_distributed_environment(1, 0, store.as_uri(), 0, "gloo")
        stack.callback(destroy_distributed_environment)
        initialize_model_parallel(1, 1)
        stack.callback(destroy_model_parallel)
        yield config
