# SPDX-License-Identifier: Apache-2.0
"""Generate dummy weights of gpt-oss in any size: the same on every run, valid in their formats, loaded like a checkpoint's.

vLLM's own dummy loader leaves MXFP4 as zeros or as uninitialized memory, and fills the rest with small numbers. Here every tensor of
the checkpoint is generated on the device when it is needed, and is renamed, padded and quantized like a checkpoint's. So speed and
code path are real, but the model's text is not.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from stack.validation.pack.recipes import FORMAT

_SPREAD = 0.02
_SCALES = (119, 122)
"""Range of e8m0 exponents, the end excluded. With the mean square of e2m1's values (8.56) they give about `_SPREAD`."""

Config = dict[str, Any]


def register() -> None:
    """Register the format with vLLM, which calls this plugin in each of its processes."""
    from vllm.model_executor.model_loader import register_model_loader  # noqa: PLC0415
    from vllm.model_executor.model_loader.default_loader import (  # noqa: PLC0415
        DefaultModelLoader,
    )

    class Loader(DefaultModelLoader):  # type: ignore[misc]
        """Loads generated tensors instead of files."""

        def download_model(self, model_config: Any) -> None:
            """Download nothing."""

        def get_all_weights(self, model_config: Any, _: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
            """Generate the checkpoint's tensors on the device."""
            yield from tensors(model_config.hf_config.to_dict(), "cuda" if torch.cuda.is_available() else "cpu")

    register_model_loader(FORMAT)(Loader)


def tensors(config: Config, device: torch.device | str) -> Iterator[tuple[str, torch.Tensor]]:
    """Generate the checkpoint's tensors by name; each depends only on its name and shape."""
    for name, shape in shapes(config):
        yield name, _made(name, shape, device)


def shapes(config: Config) -> Iterable[tuple[str, tuple[int, ...]]]:
    """List names and shapes of all tensors of a gpt-oss checkpoint in MXFP4."""
    hidden, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    queries, keys = (config[name] * config["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        place = f"model.layers.{layer}"
        yield f"{place}.input_layernorm.weight", (hidden,)
        for part, rows in (("q", queries), ("k", keys), ("v", keys)):
            yield f"{place}.self_attn.{part}_proj.weight", (rows, hidden)
            yield f"{place}.self_attn.{part}_proj.bias", (rows,)
        yield f"{place}.self_attn.o_proj.weight", (hidden, queries)
        yield f"{place}.self_attn.o_proj.bias", (hidden,)
        yield f"{place}.self_attn.sinks", (config["num_attention_heads"],)
        yield f"{place}.post_attention_layernorm.weight", (hidden,)
        yield f"{place}.mlp.router.weight", (experts, hidden)
        yield f"{place}.mlp.router.bias", (experts,)
        for part, rows, columns in (("gate_up", 2 * inner, hidden), ("down", hidden, inner)):
            yield f"{place}.mlp.experts.{part}_proj_blocks", (experts, rows, columns // 32, 16)
            yield f"{place}.mlp.experts.{part}_proj_scales", (experts, rows, columns // 32)
            yield f"{place}.mlp.experts.{part}_proj_bias", (experts, rows)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)


def _made(name: str, shape: tuple[int, ...], device: torch.device | str) -> torch.Tensor:
    random = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    if name.endswith("_blocks"):  # all sixteen codes of e2m1 are finite numbers
        return torch.randint(256, shape, generator=random, device=device, dtype=torch.uint8)
    if name.endswith("_scales"):
        return torch.randint(*_SCALES, shape, generator=random, device=device, dtype=torch.uint8)
    drawn = torch.randn(shape, generator=random, device=device, dtype=torch.bfloat16).mul_(_SPREAD)
    return drawn.add_(1) if name.endswith("norm.weight") else drawn
