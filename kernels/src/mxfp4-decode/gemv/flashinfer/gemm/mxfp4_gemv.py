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

from typing import Optional, Tuple

import torch

from ..api_logging import flashinfer_experimental_api
from ..utils import backend_requirement, supported_compute_capability

MXFP4_GEMV_MAX_TOKENS = 16
_FROM_SM80 = [80, 86, 87, 89, 90, 100, 103, 107, 110, 120, 121]


@supported_compute_capability(_FROM_SM80)
def _check_mxfp4_gemv(x, weight, scale, bias, out, enable_pdl):
    tokens = x.shape[0]
    if not 1 <= tokens <= MXFP4_GEMV_MAX_TOKENS:
        raise ValueError(
            f"mxfp4_gemv takes 1 to {MXFP4_GEMV_MAX_TOKENS} tokens, not {tokens}"
        )
    return True


@backend_requirement({}, common_check=_check_mxfp4_gemv)
@flashinfer_experimental_api(feature="MXFP4 GEMV for few tokens")
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

    Examples
    --------
    >>> weight, scale = mxfp4_weight_quantize(linear.weight)
    >>> y = mxfp4_gemv(x, weight, scale, linear.bias)
    """
    from ..experimental.mxfp4_decode.gemv import gemv

    return gemv(x, weight, scale, bias, out, enable_pdl)


@supported_compute_capability(_FROM_SM80)
def _check_mxfp4_weight_quantize(weight, scale_rounding):
    if weight.shape[1] % 32:
        raise ValueError(f"{weight.shape[1]} columns are no multiple of 32")
    if scale_rounding not in ("even", "floor"):
        raise ValueError(f"scale_rounding is even or floor, not {scale_rounding}")
    return True


@backend_requirement({}, common_check=_check_mxfp4_weight_quantize)
@flashinfer_experimental_api(feature="MXFP4 weight quantization")
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
    from ..experimental.mxfp4_decode.gemv import weight_quantize

    return weight_quantize(weight, scale_rounding == "even")


@supported_compute_capability(_FROM_SM80)
def _check_mxfp4_weight_dequantize(codes, scales, out):
    return True


@backend_requirement({}, common_check=_check_mxfp4_weight_dequantize)
@flashinfer_experimental_api(feature="MXFP4 weight quantization")
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
    from ..experimental.mxfp4_decode.gemv import weight_dequantize

    return weight_dequantize(codes, scales, out)
