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

from typing import Optional

import torch

from ..api_logging import flashinfer_experimental_api
from ..utils import backend_requirement, supported_compute_capability

MXFP4_MOE_DECODE_MAX_TOKENS = 1
MXFP4_MOE_DECODE_MAX_CHOICES = 8


@supported_compute_capability([80, 86, 87, 89, 90, 100, 103, 107, 110, 120, 121])
def _check_mxfp4_moe_decode(hidden_states, topk_ids, **others):
    tokens = hidden_states.shape[0]
    choices = topk_ids.shape[-1]
    if tokens != MXFP4_MOE_DECODE_MAX_TOKENS:
        raise ValueError(f"mxfp4_moe_decode takes one token, not {tokens}")
    if not 1 <= choices <= MXFP4_MOE_DECODE_MAX_CHOICES:
        raise ValueError(
            f"mxfp4_moe_decode takes 1 to {MXFP4_MOE_DECODE_MAX_CHOICES} choices, not {choices}"
        )
    return True


@backend_requirement({}, common_check=_check_mxfp4_moe_decode)
@flashinfer_experimental_api(feature="MXFP4 MoE for few tokens")
def mxfp4_moe_decode(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    *,
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
    r"""Mixture of experts with MXFP4 weights for one token, bound by the weights' bytes.

    Sums are float32. The hidden states, and what is between both products, become fixed point of 14 bits and a
    sign with a scale for 32 columns. Weights lie as the
    CUTLASS MXFP8 x MXFP4 path has them, so that both can use the same. Two launches, no work on the host between
    them.

    The same input gives the same bits.

    Each choice of a token adds ``weight * (w2 @ act(w13 @ x + w13_bias) + w2_bias)``, with
    ``act = (clamp(up, -limit, limit) + beta) * gate' * sigmoid(alpha * gate')``,
    ``gate' = min(gate, limit)``.

    Parameters
    ----------
    hidden_states : torch.Tensor
        ``[1, hidden]``, bfloat16; ``hidden`` a multiple of 32, at most 30080 where a block has 99 KB of shared
        memory. An infinity or NaN makes the token NaN, where it has an expert.
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
    topk_ids : torch.Tensor
        ``[1, choices]``, int32; at most 8 choices. A choice outside of the experts adds nothing.
    topk_weights : torch.Tensor
        ``[1, choices]``, float32.
    w13_bias, w2_bias : Optional[torch.Tensor]
        ``[experts, 2 * stored_intermediate]`` and ``[experts, stored_hidden]``, bfloat16.
    intermediate_size : Optional[int]
        The intermediate size without padding, a multiple of 32; ``stored_intermediate`` by default.
    alpha, beta, limit : float
        Of the activation, gpt-oss's by default; a ``limit`` of None is none.
    expert_map : Optional[torch.Tensor]
        int32: the place in ``w13`` of the expert that an id means, negative where it is on another device.
    out : Optional[torch.Tensor]
        ``[1, hidden]``, bfloat16.
    enable_pdl : Optional[bool]
        Programmatic dependent launch; by default where the device has it (SM90 and later). Nothing is read
        before the preceding kernel of the stream has ended.

    Returns
    -------
    torch.Tensor
        ``[1, hidden]``, bfloat16.

    Examples
    --------
    >>> scale = flashinfer.block_scale_interleave(w13_scale)  # of each expert
    >>> y = mxfp4_moe_decode(x, w13, scale, w2, other_scale, topk_ids, topk_weights)
    """
    from ..experimental.mxfp4_decode.moe import moe_decode

    return moe_decode(
        hidden_states,
        w13,
        w13_scale,
        w2,
        w2_scale,
        topk_ids,
        topk_weights,
        w13_bias,
        w2_bias,
        intermediate_size,
        alpha,
        beta,
        limit,
        expert_map,
        out,
        enable_pdl,
    )
