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

# A mixture of experts with MXFP4 weights for few tokens.

import functools
import math
from typing import Optional

import torch

from ...jit.core import JitSpec
from ...utils import device_support_pdl
from .jit import gen_mxfp4_decode_module

# Of 128 columns between both launches: 16 bits each, and a scale for 32.
_STAGE_BYTES = 272


def gen_mxfp4_moe_decode_module() -> JitSpec:
    return gen_mxfp4_decode_module("mxfp4_moe_decode")


@functools.cache
def get_mxfp4_moe_decode_module():
    return gen_mxfp4_moe_decode_module().build_and_load()


def moe_decode(
    hidden_states: torch.Tensor,
    w13: torch.Tensor,
    w13_scale: torch.Tensor,
    w2: torch.Tensor,
    w2_scale: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    w13_bias: Optional[torch.Tensor],
    w2_bias: Optional[torch.Tensor],
    intermediate_size: Optional[int],
    alpha: float,
    beta: float,
    limit: Optional[float],
    expert_map: Optional[torch.Tensor],
    out: Optional[torch.Tensor],
    enable_pdl: Optional[bool],
) -> torch.Tensor:
    if intermediate_size is None:
        intermediate_size = w2.shape[2] * 2
    if out is None:
        out = torch.empty_like(hidden_states)
    if enable_pdl is None:
        enable_pdl = device_support_pdl(hidden_states.device)
    activated = torch.empty(
        topk_ids.numel(),
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
