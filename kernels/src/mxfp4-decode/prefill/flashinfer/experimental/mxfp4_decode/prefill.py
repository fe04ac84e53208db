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

# A mixture of experts with MXFP4 weights for many tokens.

import functools
import math
from typing import Optional

import torch

from ...jit.core import JitSpec, current_compilation_context, gen_jit_spec
from .jit import _HERE

# Between the launches: rows of an expert are padded to these, columns to those.
_ROWS_TOGETHER = 8
_PLANE_COLUMNS = 64
# Of the plan: entries of the narrowest tile, and the words that describe a tile.
_NARROW_ROWS = 64
_TILE_WORDS = 4


def gen_mxfp4_moe_prefill_module() -> JitSpec:
    """The module for SM90a, whose instructions for matrices its kernels need."""
    return gen_jit_spec(
        "mxfp4_moe_prefill",
        [_HERE / "csrc" / "mxfp4_moe_prefill.cu"],
        extra_cuda_cflags=current_compilation_context.get_nvcc_flags_list(
            supported_major_versions=[9]
        ),
        extra_include_paths=[_HERE / "include"],
    )


@functools.cache
def get_mxfp4_moe_prefill_module():
    return gen_mxfp4_moe_prefill_module().build_and_load()


def most_rows(entries: int, experts: int) -> int:
    """Rows that entries may take, each expert's padded."""
    padding = min(entries, experts) * (_ROWS_TOGETHER - 1)
    return -(-(entries + padding) // _ROWS_TOGETHER) * _ROWS_TOGETHER


def plan_words(entries: int, experts: int) -> int:
    """Words of all tiles, of their number, and of each entry's row."""
    return (entries // _NARROW_ROWS + experts + 1) * _TILE_WORDS + entries


def moe_prefill(
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
) -> torch.Tensor:
    if intermediate_size is None:
        intermediate_size = w2.shape[2] * 2
    if out is None:
        out = torch.empty_like(hidden_states)
    experts, entries = w13.shape[0], topk_ids.numel()
    rows = most_rows(entries, experts)

    def planes(columns: int) -> torch.Tensor:
        count = -(-columns // _PLANE_COLUMNS)
        return hidden_states.new_empty(count, rows, _PLANE_COLUMNS)

    plan = topk_ids.new_empty(plan_words(entries, experts))
    get_mxfp4_moe_prefill_module().mxfp4_moe_prefill(
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
        plan,
        planes(hidden_states.shape[1]),
        planes(intermediate_size),
        out,
        alpha,
        beta,
        math.inf if limit is None else limit,
    )
    return out
