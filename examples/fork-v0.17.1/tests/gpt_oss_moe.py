# SPDX-License-Identifier: Apache-2.0
"""The MXFP4 MoE of gpt-oss in later releases, where an oracle asks the classes of the experts what they support."""

import dataclasses
import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.layers.quantization.mxfp4 as mxfp4
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.fused_moe import config as moe
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.utils.argparse_utils import FlexibleArgumentParser

HAS_ORACLE = not hasattr(mxfp4, "get_mxfp4_backend")

LATER_NAMES = {
    "SM90_FI_MXFP4_BF16": "FLASHINFER_CUTLASS_MXFP4_BF16",
    "SM100_FI_MXFP4_MXFP8_CUTLASS": "FLASHINFER_CUTLASS_MXFP4_MXFP8",
    "SM100_FI_MXFP4_MXFP8_TRTLLM": "FLASHINFER_TRTLLM_MXFP4_MXFP8",
    "SM100_FI_MXFP4_BF16": "FLASHINFER_TRTLLM_MXFP4_BF16",
}
"""What an oracle calls the backends."""

_EXPERTS = {
    "has_flashinfer_cutlass_fused_moe": "flashinfer_cutlass_moe",
    "has_flashinfer": "trtllm_mxfp4_moe",
    "has_triton_kernels": "gpt_oss_triton_kernels_moe",
}


def asking_for(moe_backend: str, *, mxfp8: bool = False) -> list[str]:
    """The arguments; where releases have several kernels of one name, the type of activations chooses."""
    line = ["--moe-backend", moe_backend.replace("_", "-")]
    place = support.TREE / "vllm/config/quantization.py"
    if mxfp8 and place.exists() and "class QuantizationConfigArgs" in place.read_text():
        line += ["--quantization-config", json.dumps({"moe": {"activation": "mxfp8"}})]
    return line


def parsed(*line: str) -> EngineArgs:
    """A command line as the server reads it."""
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser(exit_on_error=False))
    return EngineArgs.from_cli_args(parser.parse_args(["--model", support.folder(), *line]))


def install(monkeypatch: pytest.MonkeyPatch, *, flashinfer: bool, triton_kernels: bool) -> None:
    """What is installed, for each class of experts that asks."""
    there = {"has_flashinfer_cutlass_fused_moe": flashinfer, "has_flashinfer": flashinfer, "has_triton_kernels": triton_kernels}
    for name, module in _EXPERTS.items():
        monkeypatch.setattr(_experts(module), name, lambda answer=there[name]: answer)


@contextmanager
def method(*line: str) -> Iterator[Any]:
    """What runs the MoE of a server with these arguments; its configuration is in force in the block."""
    arguments = parsed(*line)
    config = VllmConfig(device_config=DeviceConfig(device="cpu"))
    asked = getattr(arguments, "quantization_config", None)
    if isinstance(asked, dict):
        asked = importlib.import_module("vllm.config.quantization").QuantizationConfigArgs(**asked)
    config.model_config = SimpleNamespace(quantization_config=asked)
    kind = getattr(mxfp4, "GptOssMxfp4MoEMethod", mxfp4.Mxfp4MoEMethod)
    with set_current_vllm_config(config):
        yield kind(_layer(arguments.moe_backend))


def _layer(moe_backend: str) -> moe.FusedMoEConfig:
    """The MoE of gpt-oss-120b on one device."""
    values = {
        "num_experts": 128,
        "experts_per_token": 4,
        "hidden_dim": 2880,
        "intermediate_size": 2880,
        "intermediate_size_per_partition": 2880,
        "num_local_experts": 128,
        "num_logical_experts": 128,
        "activation": MoEActivation.SWIGLUOAI,
        "device": "cpu",
        "routing_method": moe.RoutingMethodType.Renormalize,
        "moe_parallel_config": moe.FusedMoEParallelConfig.make_no_parallel(),
        "in_dtype": torch.bfloat16,
        "moe_backend": moe_backend,
        "has_bias": True,
    }
    fields = {field.name for field in dataclasses.fields(moe.FusedMoEConfig)}
    return moe.FusedMoEConfig(**{name: value for name, value in values.items() if name in fields})


def _experts(name: str) -> ModuleType:
    """A module of experts; it moved once."""
    package = "vllm.model_executor.layers.fused_moe"
    place = f"{package}.experts.{name}"
    if not (support.TREE / place.replace(".", "/")).with_suffix(".py").exists():
        place = f"{package}.{name}"
    return importlib.import_module(place)
