# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's kernels for few tokens, as its documentation says what they compute, without a GPU.

They stand in for compiled functions that vLLM calls: what these would refuse is refused, and of padded weights only what belongs
to the model is read. Sums are in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mxfp4
import torch

MOST_TOKENS = 16


def swiglu(gate: torch.Tensor, up: torch.Tensor, alpha: float, beta: float, limit: float) -> torch.Tensor:
    """gpt-oss's activation."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + beta)


def recorded(calls: list[tuple[str, int]], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; each call of it leaves its name and how many tokens it was given."""

    def call(*given: Any, **named: Any) -> Any:
        inputs = given[0] if given else named["input"]
        calls.append((name, len(inputs)))
        return function(*given, **named)

    return call


def check_inputs(inputs: torch.Tensor) -> None:
    """What every kernel for few tokens wants."""
    assert inputs.dtype is torch.bfloat16
    assert inputs.is_contiguous()
    assert 1 <= len(inputs) <= MOST_TOKENS
    assert inputs.shape[1] % 32 == 0


def choices(
    ids: torch.Tensor | None, weights: torch.Tensor | None, logits: torch.Tensor | None, top: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and weights that are given, or those of the largest logits, of equal ones the first."""
    if logits is None:
        assert ids is not None
        assert weights is not None
        assert top is None
        return ids, weights
    assert ids is None
    assert weights is None
    assert top is not None
    assert logits.dtype is torch.bfloat16
    assert logits.is_contiguous()
    order = logits.float().sort(dim=1, descending=True, stable=True)
    return order.indices[:, :top].int().contiguous(), order.values[:, :top].softmax(-1)


def moe_decode(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    topk_ids: torch.Tensor | None = None,
    topk_weights: torch.Tensor | None = None,
    *,
    routing_logits: torch.Tensor | None = None,
    is_padding: torch.Tensor | None = None,
    top_k: int | None = None,
    w13_bias: torch.Tensor | None = None,
    w2_bias: torch.Tensor | None = None,
    intermediate_size: int | None = None,
    alpha: float = 1.702,
    beta: float = 1.0,
    limit: float | None = 7.0,
    expert_map: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """flashinfer.fused_moe.mxfp4_moe_decode: rows of the first weight are up, then gate; scales are in the 128x4 layout."""
    check_inputs(hidden_states)
    assert w13.dtype is w13_scale.dtype is w2.dtype is w2_scale.dtype is torch.uint8
    assert is_padding is None or (routing_logits is not None and is_padding.dtype is torch.bool)
    topk_ids, topk_weights = choices(topk_ids, topk_weights, routing_logits, top_k)
    padding = [False] * len(topk_ids) if is_padding is None else is_padding.tolist()
    assert len(padding) == len(topk_ids)
    assert topk_ids.dtype is torch.int32
    assert topk_weights.dtype is torch.float32
    assert all(one.is_contiguous() for one in (w13, w13_scale, w2, w2_scale, topk_ids, topk_weights))
    assert expert_map is None or expert_map.dtype is torch.int32
    hidden, half = hidden_states.shape[1], w13.shape[1] // 2
    intermediate = half if intermediate_size is None else intermediate_size
    assert intermediate % 32 == 0
    out = torch.empty_like(hidden_states) if out is None else out
    assert out.shape == hidden_states.shape
    assert out.is_contiguous()

    def matrix(packed: torch.Tensor, scale: torch.Tensor, expert: int, first: int, rows: int, columns: int) -> torch.Tensor:
        """Rows from `first` on, and columns, of an expert's weight, whatever lies behind them."""
        height, blocks = packed.shape[1], packed.shape[2] // 16
        tiles = scale.reshape(len(packed), -1)[expert]
        assert len(tiles) == -(-height // 128) * 128 * -(-blocks // 4) * 4
        scales = mxfp4.from_tiles(tiles, height, blocks)[first : first + rows, : columns // 32]
        return mxfp4.dequantize(packed[expert, first : first + rows, : columns // 2].contiguous(), scales)

    @functools.cache
    def weights(expert: int) -> tuple[torch.Tensor, ...]:
        up, gate = (matrix(w13, w13_scale, expert, first, intermediate, hidden) for first in (0, half))
        return up, gate, matrix(w2, w2_scale, expert, 0, hidden, intermediate)

    def bias(of: torch.Tensor | None, expert: int, first: int, rows: int) -> torch.Tensor:
        return torch.zeros(rows, dtype=torch.float64) if of is None else of[expert, first : first + rows].double()

    def expert_output(expert: int, inputs: torch.Tensor) -> torch.Tensor:
        up, gate, down = weights(expert)
        ups = up @ inputs.double() + bias(w13_bias, expert, 0, intermediate)
        gates = gate @ inputs.double() + bias(w13_bias, expert, half, intermediate)
        inner = swiglu(gates, ups, alpha, beta, float("inf") if limit is None else limit)
        return down @ inner + bias(w2_bias, expert, 0, hidden)

    for token, experts in enumerate(topk_ids.tolist()):
        total = torch.zeros(hidden, dtype=torch.float64)
        for place, named in enumerate(experts):
            expert = named if expert_map is None else int(expert_map[named])
            if expert >= 0 and not padding[token]:
                total += topk_weights[token, place] * expert_output(expert, hidden_states[token])
        out[token] = total.to(out.dtype)
    return out


def gemv(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """flashinfer.gemm.mxfp4_gemv: codes and scales as a checkpoint has them."""
    check_inputs(x)
    check_weight(weight, scale)
    assert weight.shape[1] * 2 == x.shape[1]
    values = x.double() @ mxfp4.dequantize(weight, scale).T
    out = torch.empty(values.shape, dtype=x.dtype) if out is None else out
    assert out.shape == values.shape
    assert out.is_contiguous()
    return out.copy_(values if bias is None else values + bias.double())


def weight_quantize(weight: torch.Tensor, *, scale_rounding: str) -> tuple[torch.Tensor, torch.Tensor]:
    """flashinfer.gemm.mxfp4_weight_quantize, of its two rules for scales the one that vLLM's own quantizer has."""
    assert weight.is_contiguous()
    assert scale_rounding == "even"
    return mxfp4.quantize(weight)


def weight_dequantize(codes: torch.Tensor, scales: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """flashinfer.gemm.mxfp4_weight_dequantize: exact."""
    check_weight(codes, scales)
    values = mxfp4.dequantize(codes, scales)
    out = torch.empty(values.shape, dtype=torch.bfloat16) if out is None else out
    assert out.dtype is torch.bfloat16
    assert out.shape == values.shape
    assert out.is_contiguous()
    return out.copy_(values)


def tinygemm(
    input: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    bias: torch.Tensor | None = None,
    use_pdl: bool = False,
) -> None:
    """flashinfer.gemm.tinygemm_bf16: weights in BF16; with use_pdl it hangs, unless all kernels before it have it, too."""
    for one, shape in ((input, input.shape), (weight, weight.shape), (out, (len(input), len(weight)))):
        assert one.dtype is torch.bfloat16
        assert one.dim() == 2
        assert one.shape == shape
        assert one.is_contiguous()
    assert len(input) > 0
    assert input.shape[1] == weight.shape[1]
    assert input.shape[1] % 64 == 0
    assert len(weight) % 16 == 0
    assert not use_pdl
    values = input.double() @ weight.double().T
    if bias is not None:
        assert bias.dtype is torch.bfloat16
        assert bias.shape == weight.shape[:1]
        assert bias.is_contiguous()
        values += bias.double()
    out.copy_(values)


def check_weight(codes: torch.Tensor, scales: torch.Tensor) -> None:
    """A plain MXFP4 matrix."""
    assert codes.dtype is scales.dtype is torch.uint8
    assert codes.is_contiguous()
    assert scales.is_contiguous()
    assert codes.shape == (len(scales), 16 * scales.shape[1])
