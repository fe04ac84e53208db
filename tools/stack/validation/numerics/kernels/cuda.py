# SPDX-License-Identifier: Apache-2.0
"""Kernels that run on a GPU, each called as vLLM calls it, with the sizes to which vLLM pads for it.

MXFP4 experts go through vLLM's own choice of weight layout, settings and kernel for a backend. So the patches to this code are
tested, too. Nothing here has run on SM121; the verdicts say which kernel ran where.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.attention import Attention
from stack.validation.numerics.blocks import Blocks
from stack.validation.numerics.experts import ALPHA, LIMIT, TOP, Experts
from stack.validation.numerics.kernels import Kernel
from stack.validation.numerics.kernels.environment import gpu, missing
from stack.validation.numerics.linear import Linear

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


@dataclass(frozen=True, slots=True)
class Mixture:
    """vLLM's MXFP4 experts with one layer's weights, laid out for a backend. `hidden` is the hidden size padded for it."""

    kernel: Any
    weights: tuple[Any, Any]
    hidden: int
    experts: int

    def __call__(self, x: Any, logits: Any, route: tuple[Any, Any] | None = None) -> Any:
        """Compute the output [tokens, hidden] of x [tokens, hidden], both bfloat16 and padded; logits float32 [tokens, experts].

        `route`: ids int32 and weights float32 [tokens, top]. Only a backend that selects experts itself uses the logits.
        Call it inside of `configured`.
        """
        from vllm.model_executor.layers.fused_moe.activation import MoEActivation  # noqa: PLC0415

        common = {
            "hidden_states": x, "w1": self.weights[0], "w2": self.weights[1], "activation": MoEActivation.SWIGLUOAI,
            "global_num_experts": self.experts, "expert_map": None, "apply_router_weight_on_input": False,
        }  # fmt: skip
        if self.kernel.is_monolithic:
            return self.kernel.apply_monolithic(router_logits=logits, routing_sink=None, **common)
        ids, weights = route if route is not None else chosen(logits)
        return self.kernel.apply(topk_weights=weights, topk_ids=ids, **common)


def chosen(logits: Any) -> tuple[Any, Any]:
    """Compute the experts of each token and their weights with the kernel of vLLM's router."""
    torch = _torch()
    from vllm import _custom_ops as ops  # noqa: PLC0415

    ids, places = (torch.empty(len(logits), TOP, dtype=torch.int32, device="cuda") for _ in range(2))
    weights = torch.empty(len(logits), TOP, device="cuda")
    ops.topk_softmax(weights, ids, places, logits, True)
    return ids, weights


@contextmanager
def configured() -> Iterator[None]:
    """Provide a configuration for vLLM's layers, and scratch memory on this GPU."""
    torch = _torch()
    from vllm.config import VllmConfig, set_current_vllm_config  # noqa: PLC0415
    from vllm.v1.worker import workspace  # noqa: PLC0415

    if not workspace.is_workspace_manager_initialized():
        workspace.init_workspace_manager(torch.device("cuda", torch.cuda.current_device()))
    with set_current_vllm_config(VllmConfig()):
        yield


def experts(backend: str, layer: Experts) -> npt.ArrayLike:
    """Run vLLM's MXFP4 experts by one of its backends, a name of its Mxfp4MoeBackend."""
    with configured():
        mixture = mixed(backend, layer, converted(backend, layer, checkpoint(layer)))
        x = _torch().zeros(layer.tokens, mixture.hidden, dtype=_torch().bfloat16, device="cuda")
        x[:, : layer.hidden] = _tensor(layer.inputs)
        ids, weights = layer.route
        output = mixture(x, _tensor(layer.logits), (_tensor(ids), _tensor(weights)))
    return _array(output[:, : layer.hidden])


def converted(backend: str, layer: Experts, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Convert a checkpoint's weights with vLLM's code to a backend's layout: both weights, both scales, both biases."""
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle  # noqa: PLC0415

    chosen, hidden, intermediate = _rounded(backend, layer)
    whole = _padded(given, hidden, intermediate)
    holder = SimpleNamespace(**whole, params_dtype=_torch().bfloat16, num_experts=layer.experts)
    parts = oracle.convert_gpt_oss_weight_to_mxfp4_moe_kernel_format(
        chosen, holder, *(whole[name] for name in NAMES), _cache_permute_indices={}
    )
    return tuple(parts)


def mixed(backend: str, layer: Experts, parts: tuple[Any, ...]) -> Mixture:
    """Build vLLM's own settings and kernel for a backend, with weights in its layout."""
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle  # noqa: PLC0415

    chosen, hidden, intermediate = _rounded(backend, layer)
    first, second, *rest = parts
    settings = oracle.make_mxfp4_moe_quant_config(
        chosen, rest[0], rest[1], gemm1_alpha=ALPHA, gemm1_beta=1.0, swiglu_limit=LIMIT, w1_bias=rest[2], w2_bias=rest[3]
    )
    kernel = oracle.make_mxfp4_moe_kernel(
        settings, _moe_config(layer, hidden, intermediate), oracle.backend_to_kernel_cls(chosen)[0], chosen
    )
    return Mixture(kernel, (first, second), hidden, layer.experts)


def _rounded(backend: str, layer: Experts) -> tuple[Any, int, int]:
    """Return the backend, and the hidden and intermediate size padded for it by vLLM."""
    from vllm.model_executor.layers.fused_moe.oracle import mxfp4 as oracle  # noqa: PLC0415

    chosen = oracle.Mxfp4MoeBackend[backend]
    return chosen, *oracle.mxfp4_round_up_hidden_size_and_intermediate_size(chosen, layer.hidden, layer.intermediate)


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


NAMES = ("w13_weight", "w2_weight", "w13_weight_scale", "w2_weight_scale", "w13_bias", "w2_bias")


def checkpoint(layer: Experts) -> dict[str, Any]:
    """Build the weights in a checkpoint's layout, by vLLM's names: one tensor each with all experts."""
    torch = _torch()
    count, rows, byte = layer.experts, 2 * layer.intermediate, {"dtype": torch.uint8, "device": "cuda"}
    whole = {
        "w13_weight": torch.empty(count, rows, layer.hidden // 2, **byte),
        "w2_weight": torch.empty(count, layer.hidden, layer.intermediate // 2, **byte),
        "w13_weight_scale": torch.empty(count, rows, layer.hidden // 32, **byte),
        "w2_weight_scale": torch.empty(count, layer.hidden, layer.intermediate // 32, **byte),
        "w13_bias": torch.empty(count, rows, dtype=torch.bfloat16, device="cuda"),
        "w2_bias": torch.empty(count, layer.hidden, dtype=torch.bfloat16, device="cuda"),
    }
    for number in range(count):
        expert = layer.expert(number)
        parts: tuple[npt.NDArray[Any], ...] = (
            expert.gate_up.codes, expert.down.codes, expert.gate_up.scales, expert.down.scales,
            expert.gate_up_bias, expert.down_bias,
        )  # fmt: skip
        for name, part in zip(NAMES, parts, strict=True):
            whole[name][number] = _tensor(part)
    return whole


def _padded(given: Mapping[str, Any], hidden: int, intermediate: int) -> dict[str, Any]:
    """Pad a checkpoint's weights with zeros to the given sizes."""
    rows = {"w13": 2 * intermediate, "w2": hidden}
    columns = {"w13": hidden, "w2": intermediate}
    per_byte = {"weight": 2, "weight_scale": 32}
    padded = {}
    for name, tensor in given.items():
        which, _, what = name.partition("_")
        shape = (len(tensor), rows[which], *([columns[which] // per_byte[what]] if what in per_byte else []))
        padded[name] = tensor.new_zeros(shape)
        padded[name][tuple(map(slice, tensor.shape))] = tensor
    return padded


def four_bits(layer: Linear) -> tuple[Any, Any, Any]:
    """Build a layer's MXFP4 weight: codes and scales in a checkpoint's layout, and the bias in bfloat16."""
    parts = [part for _, part in layer.chunks() if isinstance(part, Blocks)]
    codes, scales = (np.concatenate([getattr(part, name) for part in parts]) for name in ("codes", "scales"))
    return _tensor(codes), _tensor(scales), _tensor(layer.added).bfloat16()


def marlin_layer(codes: Any, scales: Any, bias: Any) -> Callable[[Any], Any]:
    """Build vLLM's Marlin layer for an MXFP4 weight: [tokens, inputs] to [tokens, outputs], both bfloat16; `bias` may be None."""
    torch = _torch()
    from vllm.model_executor.layers.quantization.utils import marlin_utils_fp4 as fp4  # noqa: PLC0415

    outputs, inputs = len(codes), 2 * codes.shape[1]
    holder = torch.nn.Module()
    holder.output_size_per_partition, holder.input_size_per_partition = outputs, inputs
    holder.params_dtype = torch.bfloat16
    for name, value in (("weight", codes), ("weight_scale", scales), ("bias", bias)):
        setattr(holder, name, None if value is None else torch.nn.Parameter(value, requires_grad=False))
    fp4.prepare_fp4_layer_for_marlin(holder)
    return lambda x: fp4.apply_fp4_marlin_linear(
        x, holder.weight, holder.weight_scale, None, None, outputs, inputs, bias=holder.bias
    )


def marlin(layer: Linear) -> npt.ArrayLike:
    """Run vLLM's Marlin with an MXFP4 weight, which the series mxfp4-dense uses."""
    with configured():
        return _array(marlin_layer(*four_bits(layer))(_tensor(layer.x).bfloat16()))


def _cached(problem: Attention) -> tuple[Any, Any, Any, list[int]]:
    """Fill a cache by vLLM's own operator; keys and values [pages, page, shared, width], page table int32 [sequences, most pages]."""
    torch = _torch()
    from vllm import _custom_ops as ops  # noqa: PLC0415

    eight = problem.cache != "bfloat16"
    pages = [-(-keys // problem.page) for _, keys in problem.sequences]
    shape = (sum(pages) + 1, problem.page, problem.shared, problem.width)
    kind = torch.uint8 if eight else torch.bfloat16
    keys, values = (torch.full(shape, 0x7E if eight else 1000, dtype=kind, device="cuda") for _ in range(2))
    order = torch.from_numpy(np.random.default_rng(problem.seed).permutation(sum(pages)) + 1).cuda()
    table = torch.zeros(len(pages), max(pages), dtype=torch.int32, device="cuda")
    scales = [torch.tensor(each, device="cuda") for each in ((problem.key_scale, problem.value_scale) if eight else (1.0, 1.0))]
    for number, mine in enumerate(torch.split(order, pages)):
        table[number, : len(mine)] = mine
        slots = (mine[:, None] * problem.page + torch.arange(problem.page, device="cuda")).flatten()[
            : problem.sequences[number][1]
        ]
        key, value = (_tensor(each).bfloat16() for each in problem.keys(number))
        ops.reshape_and_cache_flash(key, value, keys, values, slots, "fp8_e4m3" if eight else "auto", *scales)
    if eight:
        keys, values = keys.view(torch.float8_e4m3fn), values.view(torch.float8_e4m3fn)
    return keys, values, table, pages


def _starts(counts: list[int]) -> Any:
    return _tensor(np.cumsum([0, *counts]).astype(np.int32))


def triton_attention(problem: Attention) -> npt.ArrayLike:
    """Run vLLM's Triton attention, the default with sinks on SM121."""
    torch = _torch()
    from vllm.v1.attention.ops.triton_unified_attention import unified_attention  # noqa: PLC0415
    from vllm.v1.kv_cache_interface import KVQuantMode  # noqa: PLC0415

    keys, values, table, _ = _cached(problem)
    query = _tensor(problem.queries).bfloat16()
    output = torch.full_like(query, torch.nan)
    each = (len(problem.sequences), problem.shared)
    eight = problem.cache != "bfloat16"
    scales = [torch.full(each, scale if eight else 1.0, device="cuda") for scale in (problem.key_scale, problem.value_scale)]
    unified_attention(
        q=query, k=keys, v=values, out=output, cu_seqlens_q=_starts([count for count, _ in problem.sequences]),
        max_seqlen_q=max(count for count, _ in problem.sequences), seqused_k=_tensor(np.array([n for _, n in problem.sequences], np.int32)),
        max_seqlen_k=max(count for _, count in problem.sequences), softmax_scale=problem.scale, causal=True,
        window_size=(problem.window - 1, 0) if problem.window else (-1, -1), block_table=table, softcap=0,
        q_descale=None, k_descale=scales[0], v_descale=scales[1], sinks=_tensor(problem.sinks).bfloat16(),
        kv_quant_mode=KVQuantMode.FP8_PER_TENSOR if eight else KVQuantMode.NONE,  # without it no scale is applied
    )  # fmt: skip
    return _array(output).reshape(problem.tokens, -1)


def flashinfer_attention(problem: Attention) -> npt.ArrayLike:
    """Run FlashInfer's attention with sinks (FA2), the subject of the series fp8-kv. It is compiled on first use."""
    torch = _torch()
    import flashinfer  # noqa: PLC0415

    keys, values, table, pages = _cached(problem)
    query = _tensor(problem.queries).bfloat16()
    left = problem.window - 1 if problem.window else -1
    kinds = {"q_data_type": query.dtype, "kv_data_type": keys.dtype}
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(
        torch.empty(_WORKSPACE, dtype=torch.uint8, device="cuda"), kv_layout="NHD", backend="fa2",
        head_dim_qk=problem.width, head_dim_vo=problem.width, window_left=left, **kinds,
    )  # fmt: skip
    used = torch.cat([row[:count] for row, count in zip(table, pages, strict=True)])
    last = np.array([(keys_ - 1) % problem.page + 1 for _, keys_ in problem.sequences], np.int32)
    wrapper.plan(
        _starts([count for count, _ in problem.sequences]), _starts(pages), used, _tensor(last), problem.heads, problem.shared, problem.width,
        problem.page, causal=True, window_left=left, **kinds,
    )  # fmt: skip
    # The kernel takes no cache scales: multiply the logits' factor by the key scale, and the output by the value scale.
    by_key, by_value = (problem.key_scale, problem.value_scale) if problem.cache != "bfloat16" else (1.0, 1.0)
    output = wrapper.run(query, (keys, values), _tensor(problem.sinks), problem.scale * by_key) * by_value
    return _array(output).reshape(problem.tokens, -1)


def _lacks(capabilities: tuple[str, ...], *packages: str) -> Callable[[], str]:
    return lambda: gpu(*capabilities) or missing(*packages)


_COMPILING = 3600.0
"""Seconds. FlashInfer compiles about 240 units of its SM90 experts on first use; 16 cores compiled 59 in ten minutes."""


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
    """Return the format to which the kernel converts its activations before it multiplies."""
    return "mxfp8" if kernel.name.endswith("mxfp8") else "bfloat16"


def weight(kernel: Kernel[Linear]) -> str:
    """Return the format of a kernel's weight."""

    return kernel.name.rpartition("-")[2]
