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

# Dense MXFP4 layers for few tokens, and BF16 to MXFP4 and back.

import functools
from typing import Optional, Tuple

import torch

from ...jit.core import JitSpec
from ...utils import device_support_pdl
from .jit import gen_mxfp4_decode_module


def gen_mxfp4_gemv_module() -> JitSpec:
    return gen_mxfp4_decode_module("mxfp4_gemv")


@functools.cache
def get_mxfp4_gemv_module():
    return gen_mxfp4_gemv_module().build_and_load()


def gemv(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: Optional[torch.Tensor],
    out: Optional[torch.Tensor],
    enable_pdl: Optional[bool],
) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    if enable_pdl is None:
        enable_pdl = device_support_pdl(x.device)
    get_mxfp4_gemv_module().mxfp4_gemv(x, weight, scale, bias, out, enable_pdl)
    return out


def weight_quantize(
    weight: torch.Tensor, even: bool
) -> Tuple[torch.Tensor, torch.Tensor]:
    rows, columns = weight.shape
    codes = torch.empty(rows, columns // 2, dtype=torch.uint8, device=weight.device)
    scales = torch.empty(rows, columns // 32, dtype=torch.uint8, device=weight.device)
    get_mxfp4_gemv_module().mxfp4_weight_quantize(weight, codes, scales, even)
    return codes, scales


def weight_dequantize(
    codes: torch.Tensor, scales: torch.Tensor, out: Optional[torch.Tensor]
) -> torch.Tensor:
    if out is None:
        rows, halves = codes.shape
        out = torch.empty(rows, halves * 2, dtype=torch.bfloat16, device=codes.device)
    get_mxfp4_gemv_module().mxfp4_weight_dequantize(codes, scales, out)
    return out
