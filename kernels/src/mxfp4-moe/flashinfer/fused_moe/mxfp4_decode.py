"""
Copyright (c) 2026 by FlashInfer team.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

  http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
"""

import functools
import math
from typing import Optional

import torch

from ..api_logging import flashinfer_api
from ..jit.mxfp4_decode import gen_mxfp4_moe_decode_module
from ..utils import device_support_pdl

MXFP4_MOE_DECODE_MAX_TOKENS = 16
MXFP4_MOE_DECODE_MAX_CHOICES = 8
# Of 128 columns between both launches: 16 bits each, and a scale for 32.
_STAGE_BYTES = 272


@functools.cache
def get_mxfp4_moe_decode_module():
    return gen_mxfp4_moe_decode_module().build_and_load()


@flashinfer_api
def mxfp4_moe_decode(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    topk_ids: Optional[torch.Tensor] = None,
    topk_weights: Optional[torch.Tensor] = None,
    *,
    routing_logits: Optional[torch.Tensor] = None,
    is_padding: Optional[torch.Tensor] = None,
    top_k: Optional[int] = None,
    w13_bias: Optional[torch.Tensor] = None,
    w2_bias: Optional[torch.Tensor] = None,
    intermediate_size: Optional[int] = None,
    alpha: float = 1.702,
    beta: float = 1.0,
    limit: Optional[float] = 7.0,
    expert_map: Optional[torch.Tensor] = None,
    out: Optional[torch.Tensor] = None,
    enable_pdl: Optional[bool] = None,
) -> torch.Tensor:
    r"""Mixture of experts with MXFP4 weights for few tokens, bound by the weights' bytes.

    Sums are float32. The hidden states, and what is between both products, become fixed point of 14 bits and a
    sign with a scale for 32 columns, and tokens that share an expert share what is read of it. Weights lie as the
    CUTLASS MXFP8 x MXFP4 path has them, so that both can use the same. Two launches, no work on the host between
    them. Experts are given, or chosen in the same launches by the router's logits.

    The same input gives the same bits. A token's are not those that it has in another batch: who shares an expert
    with it decides in which order its products are added up.

    Each choice of a token adds ``weight * (w2 @ act(w13 @ x + w13_bias) + w2_bias)``, with
    ``act = (clamp(up, -limit, limit) + beta) * gate' * sigmoid(alpha * gate')``,
    ``gate' = min(gate, limit)``.

    Parameters
    ----------
    hidden_states : torch.Tensor
        ``[tokens, hidden]``, bfloat16; at most 16 tokens, ``hidden`` a multiple of 32 (and at most 30080 where
        a block has 99 KB of shared memory). An infinity or NaN makes its token NaN, where it has an
        expert, and no other.
    w13 : torch.Tensor
        ``[experts, 2 * stored_intermediate, stored_hidden / 2]``, uint8: two codes (E2M1) a byte, the
        low half first; the rows of "up", then those of "gate". ``stored_hidden`` may be larger than
        ``hidden``: the rest is padding, which is not read.
    w13_scale : torch.Tensor
        E8M0 as uint8, one for 32 columns of a row, for each expert tiled by 128 rows and 4 scales
        (:func:`flashinfer.block_scale_interleave`), any shape. Exact from 2^-61 to 2^65, where activations and
        sums are zeros or from 2^-50 to 2^60; smaller ones may lose bits, larger ones and NaN may be infinities
        or NaN.
    w2 : torch.Tensor
        ``[experts, stored_hidden, stored_intermediate / 2]``, uint8.
    w2_scale : torch.Tensor
        The scales of ``w2``, like ``w13_scale``.
    topk_ids : Optional[torch.Tensor]
        ``[tokens, choices]``, int32; at most 8 choices. A choice outside of the experts adds nothing.
    topk_weights : Optional[torch.Tensor]
        ``[tokens, choices]``, float32.
    routing_logits : Optional[torch.Tensor]
        In place of ``topk_ids`` and ``topk_weights``: ``[tokens, ids]``, bfloat16, of at most 65535 ids. The
        ``top_k`` largest are chosen, of equal ones those with the lowest ids, and weighted by their softmax
        (``RoutingMethodType.Renormalize``). A NaN is chosen first, and makes its token NaN, as a chosen infinity
        does.
    is_padding : Optional[torch.Tensor]
        ``[tokens]``, bool, beside ``routing_logits``: tokens that choose no experts, and become zeros.
    top_k : Optional[int]
        How many; at most 8.
    w13_bias, w2_bias : Optional[torch.Tensor]
        ``[experts, 2 * stored_intermediate]`` and ``[experts, stored_hidden]``, bfloat16.
    intermediate_size : Optional[int]
        The intermediate size without padding, a multiple of 32; ``stored_intermediate`` by default.
    alpha, beta, limit : float
        Of the activation, gpt-oss's by default; a ``limit`` of None is none.
    expert_map : Optional[torch.Tensor]
        int32: the place in ``w13`` of the expert that an id means, negative where it is on another device.
    out : Optional[torch.Tensor]
        ``[tokens, hidden]``, bfloat16.
    enable_pdl : Optional[bool]
        Programmatic dependent launch; by default where the device has it (SM90 and later). Nothing is read
        before the preceding kernel of the stream has ended.

    Returns
    -------
    torch.Tensor
        ``[tokens, hidden]``, bfloat16.
    """
    given = [one is not None for one in (topk_ids, topk_weights, routing_logits, top_k)]
    if given not in ([True, True, False, False], [False, False, True, True]):
        raise ValueError(
            "mxfp4_moe_decode takes topk_ids and topk_weights, or routing_logits and top_k"
        )
    if is_padding is not None and routing_logits is None:
        raise ValueError("mxfp4_moe_decode takes is_padding beside routing_logits only")
    tokens = hidden_states.shape[0]
    choices = topk_ids.shape[-1] if top_k is None else top_k
    if not 1 <= tokens <= MXFP4_MOE_DECODE_MAX_TOKENS:
        raise ValueError(
            f"mxfp4_moe_decode takes 1 to {MXFP4_MOE_DECODE_MAX_TOKENS} tokens, not {tokens}"
        )
    if not 1 <= choices <= MXFP4_MOE_DECODE_MAX_CHOICES:
        raise ValueError(
            f"mxfp4_moe_decode takes 1 to {MXFP4_MOE_DECODE_MAX_CHOICES} choices, not {choices}"
        )
    if intermediate_size is None:
        intermediate_size = w2.shape[2] * 2
    if out is None:
        out = torch.empty_like(hidden_states)
    if enable_pdl is None:
        enable_pdl = device_support_pdl(hidden_states.device)
    activated = torch.empty(
        tokens * choices,
        -(-intermediate_size // 128) * _STAGE_BYTES,
        dtype=torch.uint8,
        device=hidden_states.device,
    )
    get_mxfp4_moe_decode_module().mxfp4_moe_decode(
        hidden_states,
        w13,
        w13_scale,
        w2,
        w2_scale,
        topk_ids,
        topk_weights,
        routing_logits,
        is_padding,
        choices,
        intermediate_size,
        w13_bias,
        w2_bias,
        expert_map,
        activated,
        out,
        alpha,
        beta,
        math.inf if limit is None else limit,
        enable_pdl,
    )
    return out
