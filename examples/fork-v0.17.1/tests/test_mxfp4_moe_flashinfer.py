# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe in FlashInfer: which kernels of the MXFP8 x MXFP4 MoE are compiled for SM120. The generator is the upstream's own.

What CUTLASS makes of them is compiled by `stack compile-check mxfp4-moe`.
"""

import re

import pytest
import support

with support.quiet():
    from flashinfer.jit.gemm.cutlass import generate_kernels
    from flashinfer.jit.gemm.cutlass.cutlass_library import DataType

TILES = "flashinfer/offer-tiles-of-32-and-64-columns-to-the-mxfp8-x-mxfp4-moe-on-sm120.patch"

PROVES = {TILES: ["test_narrow_tiles_are_compiled", "test_what_is_compiled_can_be_chosen"]}

pytestmark = pytest.mark.filterwarnings("ignore")

Tile = tuple[int, int, int]
DISPATCH = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/moe_gemm_template_dispatch_tma_ws.h"


def tiles(*, mixed: bool, swapped: bool) -> set[Tile]:
    """The tiles (M, N, K) of the grouped kernels for SM120: FP8 x FP4, or FP4 on both sides."""
    operations = generate_kernels.generate_sm120_grouped_gemm_operations(True)
    return {
        tuple(one.cta_shape)
        for one in operations
        if one.swap_ab is swapped and (one.act_type is DataType.e4m3) is mixed
    }


@pytest.mark.parametrize("swapped", [True, False])
def test_narrow_tiles_are_compiled(swapped: bool) -> None:
    """offer-tiles-of-32-and-64-columns-…: beside the tile of 128 columns, which stays."""
    assert {(128, 32, 128), (128, 64, 128), (128, 128, 128)} <= tiles(mixed=True, swapped=swapped)


def test_what_is_compiled_can_be_chosen() -> None:
    """offer-tiles-of-32-and-64-columns-…: the switch over tiles has a case for each, K in bytes of FP8; a narrow one among them."""
    cases = re.findall(r"SHAPE_CASE\(120, (\d+), (\d+), (\d+)\)", (support.TREE / DISPATCH).read_text())
    chosen = {(int(m), int(n), int(k)) for m, n, k in cases}
    compiled = tiles(mixed=True, swapped=True)
    assert compiled <= chosen
    assert min(n for _, n, _ in compiled) < 128


def test_fp4_on_both_sides_is_as_before() -> None:
    """offer-tiles-of-32-and-64-columns-…: its kernels keep the tiles that upstream has tried."""
    wide = {(128, 128, 128), (128, 128, 256), (256, 128, 128), (128, 256, 128)}
    assert wide <= tiles(mixed=False, swapped=True)
