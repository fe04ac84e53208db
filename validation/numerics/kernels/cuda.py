# SPDX-License-Identifier: Apache-2.0
"""Kernels that run on a GPU, each reached as vLLM itself reaches it, with the sizes to which vLLM pads for it.

MXFP4 experts go through vLLM's own choice of weight layout, settings and kernel for a backend, so that the patches on the way are
under test, too. Nothing here has run on SM121; what has run where says the verdict.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from validation.numerics.attention import Attention
from validation.numerics.blocks import Blocks
from validation.numerics.experts import ALPHA, LIMIT, TOP, Experts
from validation.numerics.kernels import Kernel
from validation.numerics.kernels.environment import gpu, missing
from validation.numerics.linear import Linear

_SPARK = ("sm120", "sm121")
_HOPPER = ("sm90",)
_BOTH = (*_HOPPER, *_SPARK)
_WORKSPACE = 128 * 2**20


def _torch() -> Any:
    import torch  # noqa: PLC0415

    return torch


def _tensor(array: npt.NDArray[Any]) -> Any:
    return _torch().from_numpy(np.array(array)).cuda()


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    return np.asarray(tensor.float().cpu().numpy())


def experts(backend: str, layer: Experts) -> npt.ArrayLike:
    """vLLM's MXFP4 experts by one of its backends: a name of its Mxfp4MoeBackend."""
    torch = _torch()
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # noqa: PLC0415
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle  # noqa: PLC0415
    from vllm.v1.worker.workspace import init_workspace_manager  # noqa: PLC0415

    chosen = oracle.Mxfp4MoeBackend[backend]
    init_workspace_manager(torch.device("cuda", torch.cuda.current_device()))
    hidden, intermediate = oracle.mxfp4_round_up_hidden_size_and_intermediate_size(chosen, layer.hidden, layer.intermediate)
    with set_current_vllm_config(VllmConfig()):
        given = _checkpoint(layer, hidden, intermediate)
        holder = SimpleNamespace(**given, params_dtype=torch.bfloat16, num_experts=layer.experts)
        names = ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale", "w13_bias", "w2_bias")
        first, second, *rest = oracle.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format(
            chosen, holder, *(given[name] for name in names), _cache_permute_indices={}
        )
        settings = oracle.make_mxfp4_moe_quant_config(
            chosen, rest[0], rest[1], gemm1_alpha=ALPHA, gemm1_beta=1.0, swiglu_limit=LIMIT, w1_bias=rest[2], w2_bias=rest[3]
        )
        kernel = oracle.make_mxfp4_moe_kernel(
            settings, _moe_config(layer, hidden, intermediate), oracle.backend_to_kernel_cls(chosen)[0], chosen
        )
        x = torch.zeros(layer.tokens, hidden, dtype=torch.bfloat16, device="cuda")
        x[:, : layer.hidden] = _tensor(layer.inputs)
        common = {
            "hidden_states": x, "w1": first, "w2": second, "activation": MoEActivation.SWIGLUOAI,
            "global_num_experts": layer.experts, "expert_map": None, "apply_router_weight_on_input": False,
        }  # fmt: skip
        if kernel.is_monolithic:
            output = kernel.apply_monolithic(router_logits=_tensor(layer.logits), routing_sink=None, **common)
        else:
            ids, weights = layer.route
            output = kernel.apply(topk_weights=_tensor(weights), topk_ids=_tensor(ids), **common)
    return _array(output[:, : layer.hidden])


def _moe_config(layer: Experts, hidden: int, intermediate: int) -> Any:
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # noqa: PLC0415
    from vllm.model_executor.layers.fused_moe.config import (  # noqa: PLC0415
        FusedMoEConfig,
        FusedMoEParallelConfig,
        RoutingMethodType,
    )

    return FusedMoEConfig(
        num_experts=layer.experts, experts_per_token=TOP, hidden_dim=hidden, intermediate_size=intermediate,
        num_local_experts=layer.experts, num_logical_experts=layer.experts, activation=MoEActivation.SWIGLUOAI,
        device="cuda", routing_method=RoutingMethodType.Renormalize,
        moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(), in_dtype=_torch().bfloat16, has_bias=True,
        hidden_dim_unpadded=layer.hidden, intermediate_size_per_partition_unpadded=layer.intermediate,
        swiglu_limit=LIMIT, swiglu_alpha=ALPHA, swiglu_beta=1.0,
    )  # fmt: skip


def _checkpoint(layer: Experts, hidden: int, intermediate: int) -> dict[str, Any]:
    """The weights as the checkpoint has them, with zeros up to the padded sizes."""
    torch = _torch()
    count, byte = layer.experts, {"dtype": torch.uint8, "device": "cuda"}
    padded = {
        "w13_weight": torch.zeros(count, 2 * intermediate, hidden // 2, **byte),
        "w2_weight": torch.zeros(count, hidden, intermediate // 2, **byte),
        "w13_weight_scale": torch.zeros(count, 2 * intermediate, hidden // 32, **byte),
        "w2_weight_scale": torch.zeros(count, hidden, intermediate // 32, **byte),
        "w13_bias": torch.zeros(count, 2 * intermediate, dtype=torch.bfloat16, device="cuda"),
        "w2_bias": torch.zeros(count, hidden, dtype=torch.bfloat16, device="cuda"),
    }
    for number in range(count):
        expert = layer.expert(number)
        parts: dict[str, npt.NDArray[Any]] = {
            "w13_weight": expert.gate_up.codes, "w13_weight_scale": expert.gate_up.scales, "w13_bias": expert.gate_up_bias,
            "w2_weight": expert.down.codes, "w2_weight_scale": expert.down.scales, "w2_bias": expert.down_bias,
        }  # fmt: skip
        for name, part in parts.items():
            padded[name][(number, *map(slice, part.shape))] = _tensor(part)
    return padded


def marlin(layer: Linear) -> npt.ArrayLike:
    """vLLM's Marlin with a weight in MXFP4: what the series mxfp4-dense runs on."""
    torch = _torch()
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4 as fp4  # noqa: PLC0415

    parts = [part for _, part in layer.chunks() if isinstance(part, Blocks)]
    holder = torch.nn.Module()
    holder.output_size_per_partition, holder.input_size_per_partition = layer.outputs, layer.inputs
    holder.params_dtype = torch.bfloat16
    given = {
        "weight": _tensor(np.concatenate([part.codes for part in parts])),
        "weight_scale": _tensor(np.concatenate([part.scales for part in parts])),
        "bias": _tensor(layer.added).bfloat16(),
    }
    for name, value in given.items():
        setattr(holder, name, torch.nn.Parameter(value, requires_grad=False))
    with set_current_vllm_config(VllmConfig()):
        fp4.prepare_fp4_layer_for_marlin(holder)
        output = fp4.apply_fp4_marlin_linear(
            _tensor(layer.x).bfloat16(), holder.weight, holder.weight_scale, None, None,
            layer.outputs, layer.inputs, bias=holder.bias,
        )  # fmt: skip
    return _array(output)


def _cached(one: Attention) -> tuple[Any, Any, Any, list[int]]:
    """Keys, values and page table as vLLM's own operator leaves them: [pages, page, shared, width], int32 [sequences, most pages]."""
    torch = _torch()
    from vllm import _custom_ops as ops  # noqa: PLC0415

    eight = one.cache != "bfloat16"
    pages = [-(-keys // one.page) for _, keys in one.sequences]
    shape = (sum(pages) + 1, one.page, one.shared, one.width)
    kind = torch.uint8 if eight else torch.bfloat16
    keys, values = (torch.full(shape, 0x7E if eight else 1000, dtype=kind, device="cuda") for _ in range(2))
    order = torch.from_numpy(np.random.default_rng(one.seed).permutation(sum(pages)) + 1).cuda()
    table = torch.zeros(len(pages), max(pages), dtype=torch.int32, device="cuda")
    scales = [torch.tensor(each, device="cuda") for each in ((one.key_scale, one.value_scale) if eight else (1.0, 1.0))]
    for number, mine in enumerate(torch.split(order, pages)):
        table[number, : len(mine)] = mine
        slots = (mine[:, None] * one.page + torch.arange(one.page, device="cuda")).flatten()[: one.sequences[number][1]]
        key, value = (_tensor(each).bfloat16() for each in one.keys(number))
        ops.reshape_and_cache_flash(key, value, keys, values, slots, "fp8_e4m3" if eight else "auto", *scales)
    if eight:
        keys, values = keys.view(torch.float8_e4m3fn), values.view(torch.float8_e4m3fn)
    return keys, values, table, pages


def _starts(counts: list[int]) -> Any:
    return _tensor(np.cumsum([0, *counts]).astype(np.int32))


def triton_attention(one: Attention) -> npt.ArrayLike:
    """vLLM's attention in Triton, the default with sinks on SM121."""
    torch = _torch()
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import KVQuantMode  # noqa: PLC0415

    keys, values, table, _ = _cached(one)
    query = _tensor(one.queries).bfloat16()
    output = torch.full_like(query, torch.nan)
    each = (len(one.sequences), one.shared)
    eight = one.cache != "bfloat16"
    scales = [torch.full(each, scale if eight else 1.0, device="cuda") for scale in (one.key_scale, one.value_scale)]
    unified_attention(
        q=query, k=keys, v=values, out=output, cu_seqlens_q=_starts([count for count, _ in one.sequences]),
        max_seqlen_q=max(count for count, _ in one.sequences), seqused_k=_tensor(np.array([n for _, n in one.sequences], np.int32)),
        max_seqlen_k=max(count for _, count in one.sequences), softmax_scale=one.scale, causal=True,
        window_size=(one.window - 1, 0) if one.window else (-1, -1), block_table=table, softcap=0,
        q_descale=None, k_descale=scales[0], v_descale=scales[1], sinks=_tensor(one.sinks).bfloat16(),
        kv_quant_mode=KVQuantMode.FP8_PER_TENSOR if eight else KVQuantMode.NONE,  # without it no scale is applied
    )  # fmt: skip
    return _array(output).reshape(one.tokens, -1)


def flashinfer_attention(one: Attention) -> npt.ArrayLike:
    """FlashInfer's attention with sinks (FA2), compiled when it is first used: what the series fp8-kv is about."""
    torch = _torch()
    import flashinfer  # noqa: PLC0415

    keys, values, table, pages = _cached(one)
    query = _tensor(one.queries).bfloat16()
    left = one.window - 1 if one.window else -1
    kinds = {"q_data_type": query.dtype, "kv_data_type": keys.dtype}
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(
        torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda"), kv_layout="NHD", backend="fa2",
        head_dim_qk=one.width, head_dim_vo=one.width, window_left=left, **kinds,
    )  # fmt: skip
    used = torch.cat([row[:count] for row, count in zip(table, pages, strict=True)])
    last = np.array([(keys_ - 1) % one.page + 1 for _, keys_ in one.sequences], np.int32)
    wrapper.plan(
        _starts([count for count, _ in one.sequences]), _starts(pages), used, _tensor(last), one.heads, one.shared, one.width,
        one.page, causal=True, window_left=left, **kinds,
    )  # fmt: skip
    # The kernel knows no scale of the cache: a key's goes into the logits' factor, a value's onto the output.
    by_key, by_value = (one.key_scale, one.value_scale) if one.cache != "bfloat16" else (1.0, 1.0)
    output = wrapper.run(query, (keys, values), _tensor(one.sinks), one.scale * by_key) * by_value
    return _array(output).reshape(one.tokens, -1)


def _lacks(capabilities: tuple[str, ...], *packages: str) -> Callable[[], str]:
    return lambda: gpu(*capabilities) or missing(*packages)


_COMPILING = 3600.0
"""Seconds: FlashInfer compiles its experts for SM90 when they are first used, some 240 units; 16 cores did 59 in ten minutes."""


def _experts(name: str, capabilities: tuple[str, ...], backend: str) -> Kernel[Experts]:
    return Kernel(name, capabilities, _lacks(capabilities, "vllm"), partial(experts, backend))


def _compiled(name: str, capabilities: tuple[str, ...], backend: str) -> Kernel[Experts]:
    return Kernel(name, capabilities, _lacks(capabilities, "vllm", "flashinfer"), partial(experts, backend), _COMPILING)


EXPERTS = (
    _experts("marlin", _BOTH, "MARLIN"),
    _experts("triton", _HOPPER, "TRITON"),
    _compiled("flashinfer-cutlass-bf16", _HOPPER, "FLASHINFER_CUTLASS_MXFP4_BF16"),
    _compiled("flashinfer-cutlass-mxfp8", _SPARK, "FLASHINFER_CUTLASS_MXFP4_MXFP8"),
)
LINEAR = (Kernel("marlin-mxfp4", _BOTH, _lacks(_BOTH, "vllm"), marlin),)
ATTENTION = (
    Kernel("triton", _BOTH, _lacks(_BOTH, "vllm"), triton_attention),
    Kernel("flashinfer-sink", _BOTH, _lacks(_BOTH, "vllm", "flashinfer"), flashinfer_attention),
)


def activations(kernel: Kernel[Experts]) -> str:
    """What the kernel makes of its activations before it multiplies."""
    return "mxfp8" if kernel.name.endswith("mxfp8") else "bfloat16"


def weight(kernel: Kernel[Linear]) -> str:
    """The format of the weight that a kernel takes."""
    return kernel.name.rpartition("-")[2]
