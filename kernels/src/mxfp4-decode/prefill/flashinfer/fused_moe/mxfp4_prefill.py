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


@supported_compute_capability([90])
def _check_mxfp4_moe_prefill(hidden_states, topk_ids, **others):
    if hidden_states.shape[0] < 1 or topk_ids.shape[-1] < 1:
        raise ValueError(
            "mxfp4_moe_prefill takes at least one token and one choice, not "
            f"{hidden_states.shape[0]} and {topk_ids.shape[-1]}"
        )
    return True


@backend_requirement({}, common_check=_check_mxfp4_moe_prefill)
@flashinfer_experimental_api(feature="MXFP4 MoE for many tokens")
def mxfp4_moe_prefill(
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
) -> torch.Tensor:
    r"""Mixture of experts with MXFP4 weights for many tokens on SM90, from the weights of ``mxfp4_moe_decode``.

    Weights become BF16 in registers, exactly. Sums are float32. The intermediate and the result of each choice are
    rounded to BF16. Five launches, no work on the host between them, so it can be captured in a graph. The same
    input gives the same bits.

    Each choice of a token adds ``weight * (w2 @ act(w13 @ x + w13_bias) + w2_bias)``, with
    ``act = (clamp(up, -limit, limit) + beta) * gate' * sigmoid(alpha * gate')``,
    ``gate' = min(gate, limit)``.

    Parameters
    ----------
    hidden_states : torch.Tensor
        ``[tokens, hidden]``, bfloat16; ``hidden`` a multiple of 32. An infinity or NaN makes its own token
        infinite or NaN, where it has an expert, and no other.
    w13 : torch.Tensor
        ``[experts, 2 * stored_intermediate, stored_hidden / 2]``, uint8: two codes (E2M1) a byte, the
        low half first; the rows of "up", then those of "gate". ``stored_hidden`` may be larger than
        ``hidden``: the rest is padding, which is not read.
    w13_scale : torch.Tensor
        E8M0 as uint8, one for 32 columns of a row, for each expert tiled by 128 rows and 4 scales
        (:func:`flashinfer.block_scale_interleave`), any shape.
    w2 : torch.Tensor
        ``[experts, stored_hidden, stored_intermediate / 2]``, uint8.
    w2_scale : torch.Tensor
        The scales of ``w2``, like ``w13_scale``.
    topk_ids : torch.Tensor
        ``[tokens, choices]``, int32. A choice outside of the experts adds nothing.
    topk_weights : torch.Tensor
        ``[tokens, choices]``, float32.
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

    Returns
    -------
    torch.Tensor
        ``[tokens, hidden]``, bfloat16.

    Examples
    --------
    >>> scale = flashinfer.block_scale_interleave(w13_scale)  # of each expert
    >>> y = mxfp4_moe_prefill(x, w13, scale, w2, other_scale, topk_ids, topk_weights)
    """
    from ..experimental.mxfp4_decode.prefill import moe_prefill

    return moe_prefill(
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
    )
