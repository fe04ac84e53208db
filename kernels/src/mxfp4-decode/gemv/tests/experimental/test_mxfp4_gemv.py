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

import pytest
import torch

from flashinfer import gemm, utils
from flashinfer.utils import get_compute_capability

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def has_sm80():
    return (
        torch.cuda.is_available()
        and get_compute_capability(torch.device("cuda"))[0] >= 8
    )


needs_sm80 = pytest.mark.skipif(not has_sm80(), reason="needs SM80 or later")


def every_number():
    """All BF16 numbers but NaN, each in a block of its own beside zeros, and in blocks with its neighbours."""
    bits = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    numbers = bits.view(torch.bfloat16)
    numbers = numbers[~numbers.isnan()]
    alone = torch.zeros(len(numbers), 32, dtype=torch.bfloat16)
    alone[:, 5] = numbers
    together = numbers[: len(numbers) // 32 * 32].view(-1, 32)
    return torch.cat([alone, together, together * 1.5])


def reference(numbers, even):
    """Codes and scales by their definition, in float64."""
    blocks = numbers.double()
    largest = blocks.abs().amax(dim=1)
    mantissa, exponent = torch.frexp(largest)
    exponent = exponent - 3 + (even & (mantissa >= 0.875))
    scales = (exponent + 127).clamp(0, 254)
    scales = torch.where(largest == 0, 0, scales)
    scales = torch.where(largest.isinf(), 254, scales)
    scaled = blocks.abs() / torch.exp2(scales.double() - 127)[:, None]
    middles = (E2M1[:-1] + E2M1[1:]) / 2
    below = torch.searchsorted(middles, scaled.contiguous())
    above = torch.searchsorted(middles, scaled.contiguous(), right=True)
    codes = torch.where(below % 2 == 0, below, above)
    codes += 8 * numbers.signbit()
    return (codes[:, ::2] + 16 * codes[:, 1::2]).to(torch.uint8), scales.to(torch.uint8)


@needs_sm80
@pytest.mark.parametrize("rounding", ["even", "floor"])
def test_quantizer_is_exact(rounding):
    numbers = every_number()
    made = gemm.mxfp4_weight_quantize(numbers.cuda(), scale_rounding=rounding)
    codes, scales = (each.cpu() for each in made)
    right_codes, right_scales = reference(numbers, rounding == "even")
    assert torch.equal(scales.flatten(), right_scales)
    assert torch.equal(codes, right_codes)


@needs_sm80
def test_a_nan_spoils_its_block_only():
    numbers = torch.ones(2, 64, dtype=torch.bfloat16)
    numbers[1, 40] = torch.nan
    codes, scales = gemm.mxfp4_weight_quantize(numbers.cuda())
    assert scales.tolist() == [[125, 125], [125, 255]]
    values = gemm.mxfp4_weight_dequantize(codes, scales).cpu()
    assert values[0].tolist() == [1.0] * 64
    assert values[1, :32].tolist() == [1.0] * 32
    assert values[1, 32:].isnan().all()


@needs_sm80
def test_dequantizer_is_exact():
    codes = torch.arange(256, dtype=torch.uint8).repeat(255, 1)
    scales = torch.arange(255, dtype=torch.uint8)[:, None].repeat(1, 16)
    table = torch.cat([E2M1, -E2M1])
    values = table[torch.stack([codes & 15, codes >> 4], dim=-1).long()].flatten(-2)
    values = values * torch.exp2(scales.double() - 127).repeat_interleave(32, dim=1)
    got = gemm.mxfp4_weight_dequantize(codes.cuda(), scales.cuda()).cpu()
    assert torch.equal(got, values.bfloat16())


@needs_sm80
@pytest.mark.parametrize("tokens", [1, 3, 8, 9, 16])
@pytest.mark.parametrize(
    "rows,columns",
    [(5120, 2880), (2880, 4096), (33, 96), (8193, 160), (1, 32), (100001, 512)],
)
@pytest.mark.parametrize("with_bias", [True, False])
def test_mxfp4_gemv(tokens, rows, columns, with_bias):
    torch.manual_seed(rows)
    x = torch.randn(tokens, columns, dtype=torch.bfloat16, device="cuda")
    codes, scales = gemm.mxfp4_weight_quantize(
        torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda")
    )
    bias = torch.randn(rows, dtype=torch.bfloat16, device="cuda") if with_bias else None
    weight = gemm.mxfp4_weight_dequantize(codes, scales)
    right = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    out = gemm.mxfp4_gemv(x, codes, scales, bias)
    # The output is rounded to BF16, by at most 2^-9 of it; what is not is float32's, or of one token and many
    # rows fixed point's.
    slack = 3e-5 * (x.double().norm(dim=1)[:, None] * weight.double().norm(dim=1))
    assert ((out.double() - right).abs() <= right.abs() * 2**-8 + slack).all()
    assert all(
        torch.equal(out, gemm.mxfp4_gemv(x, codes, scales, bias)) for _ in range(5)
    )


# What follows needs no GPU: the checks of the arguments, as on SM121.


@pytest.fixture
def sm121(monkeypatch):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: (12, 1))


def test_only_few_tokens_are_taken(sm121):
    codes, scales = torch.zeros(32, 32), torch.zeros(32, 2)
    for tokens in (0, 17):
        with pytest.raises(ValueError, match=f"1 to 16 tokens, not {tokens}"):
            gemm.mxfp4_gemv(torch.zeros(tokens, 64), codes, scales)


def test_only_whole_blocks_are_quantized(sm121):
    with pytest.raises(ValueError, match="40 columns are no multiple of 32"):
        gemm.mxfp4_weight_quantize(torch.zeros(1, 40))


def test_other_roundings_are_refused(sm121):
    with pytest.raises(ValueError, match="even or floor, not up"):
        gemm.mxfp4_weight_quantize(torch.zeros(1, 32), scale_rounding="up")


def test_older_devices_are_refused(monkeypatch):
    monkeypatch.setattr(utils, "get_compute_capability", lambda device: (7, 5))
    with pytest.raises(utils.BackendSupportedError, match="75"):
        gemm.mxfp4_gemv(torch.zeros(1, 64), torch.zeros(32, 32), torch.zeros(32, 2))


@pytest.mark.parametrize(
    "name", ["mxfp4_gemv", "mxfp4_weight_quantize", "mxfp4_weight_dequantize"]
)
def test_the_api_is_marked(name):
    api = getattr(gemm, name)
    assert api.is_experimental
    assert api.is_compute_capability_supported(121)
