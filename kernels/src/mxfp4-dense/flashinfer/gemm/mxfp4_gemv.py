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
from typing import Optional, Tuple

import torch

from ..api_logging import flashinfer_api
from ..jit.mxfp4_decode import gen_mxfp4_gemv_module
from ..utils import device_support_pdl

MXFP4_GEMV_MAX_TOKENS = 16


@functools.cache
def get_mxfp4_gemv_module():
    return gen_mxfp4_gemv_module().build_and_load()


@flashinfer_api
def mxfp4_gemv(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    *,
    out: Optional[torch.Tensor] = None,
    enable_pdl: Optional[bool] = None,
) -> torch.Tensor:
    r"""``x @ dequantize(weight, scale).T + bias`` for few rows of ``x``, bound by the weight's bytes.

    Sums are float32. Activations stay BF16, but those of one row of ``x`` by a weight of many rows, which
    become fixed point of 14 bits and a sign with a scale for 32 columns. The weight lies as in an MXFP4
    checkpoint; nothing is permuted. The same input gives the same bits.

    Parameters
    ----------
    x : torch.Tensor
        ``[tokens, columns]``, bfloat16; at most 16 tokens, ``columns`` a multiple of 32. An infinity or NaN makes
        its token NaN or infinite, and no other.
    weight : torch.Tensor
        ``[rows, columns / 2]``, uint8: two codes (E2M1) a byte, the low half first.
    scale : torch.Tensor
        ``[rows, columns / 32]``, uint8: E8M0. Exact from 2^-61 to 2^65, where activations and sums are
        zeros or from 2^-50 to 2^60; smaller ones may lose bits, larger ones and NaN may be infinities or NaN.
    bias : Optional[torch.Tensor]
        ``[rows]``, bfloat16.
    out : Optional[torch.Tensor]
        ``[tokens, rows]``, bfloat16.
    enable_pdl : Optional[bool]
        Programmatic dependent launch; by default where the device has it (SM90 and later). The weight, its
        scales and the bias are then read before kernels that were launched before have ended: if one of these
        writes them, pass False.

    Returns
    -------
    torch.Tensor
        ``[tokens, rows]``, bfloat16.
    """
    tokens = x.shape[0]
    if not 1 <= tokens <= MXFP4_GEMV_MAX_TOKENS:
        raise ValueError(
            f"mxfp4_gemv takes 1 to {MXFP4_GEMV_MAX_TOKENS} tokens, not {tokens}"
        )
    if out is None:
        out = torch.empty(tokens, weight.shape[0], dtype=x.dtype, device=x.device)
    if enable_pdl is None:
        enable_pdl = device_support_pdl(x.device)
    get_mxfp4_gemv_module().mxfp4_gemv(x, weight, scale, bias, out, enable_pdl)
    return out


@flashinfer_api
def mxfp4_weight_quantize(
    weight: torch.Tensor, *, scale_rounding: str = "even"
) -> Tuple[torch.Tensor, torch.Tensor]:
    r"""A BF16 matrix in MXFP4: elements to the nearest, ties to the even code.

    On the bits, so that every device and every flag of the compiler gives the same.

    Parameters
    ----------
    weight : torch.Tensor
        ``[rows, columns]``, bfloat16, ``columns`` a multiple of 32.
    scale_rounding : str
        How the power of two of a block's largest magnitude is found: ``"floor"`` as the OCP MX
        specification has it, where numbers up to a third beyond the largest element saturate, or
        ``"even"``, after that magnitude is rounded to an element's two bits.

    Returns
    -------
    Tuple[torch.Tensor, torch.Tensor]
        Codes ``[rows, columns / 2]`` and scales ``[rows, columns / 32]``, uint8.
    """
    rows, columns = weight.shape
    if columns % 32:
        raise ValueError(f"{columns} columns are no multiple of 32")
    if scale_rounding not in ("even", "floor"):
        raise ValueError(f"scale_rounding is even or floor, not {scale_rounding}")
    codes = torch.empty(rows, columns // 2, dtype=torch.uint8, device=weight.device)
    scales = torch.empty(rows, columns // 32, dtype=torch.uint8, device=weight.device)
    get_mxfp4_gemv_module().mxfp4_weight_quantize(
        weight, codes, scales, scale_rounding == "even"
    )
    return codes, scales


@flashinfer_api
def mxfp4_weight_dequantize(
    codes: torch.Tensor, scales: torch.Tensor, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    r"""The values of an MXFP4 matrix in BF16, which has all of them.

    Parameters
    ----------
    codes, scales : torch.Tensor
        As :func:`mxfp4_weight_quantize` returns them.
    out : Optional[torch.Tensor]
        ``[rows, columns]``, bfloat16.

    Returns
    -------
    torch.Tensor
        ``[rows, columns]``, bfloat16.
    """
    if out is None:
        out = torch.empty(
            codes.shape[0],
            codes.shape[1] * 2,
            dtype=torch.bfloat16,
            device=codes.device,
        )
    get_mxfp4_gemv_module().mxfp4_weight_dequantize(codes, scales, out)
    return out
