# SPDX-License-Identifier: Apache-2.0
"""One real instantiation on the carried tree: the smallest of FlashInfer's MXFP8 x MXFP4 kernels, by the real compiler."""

from dataclasses import replace
from pathlib import Path

import pytest

from stack.carry.bases import Place, Stores
from stack.model.series import Compiles
from stack.model.stack import load
from stack.proof.compiling import check
from stack.proof.compiling.check import Asked, State
from stack.store import cache

ROOT = Path(__file__).parents[3]
# Weights on the wide side of the tile (`true`: operands swapped), 32 tokens on the narrow one: what decoding uses.
UNIT = Compiles(
    None,
    unit="gemm_sm120/group_gemm_mxfp4_groupwise_e4m3_bf16_sm120.cu",
    instantiation="( 128, 32, 128, true,",
    sass=("QMMA.SF.E2M1.E4M3.E8", "LDSM.U4x16P64TO8", "ACQBULK", "PREEXIT"),
)


@pytest.mark.slow
def test_an_mxfp4_kernel_multiplies_in_fp4_with_block_scales() -> None:
    # It multiplies FP4 by FP8, not by FP4: the other instruction is the negative control.
    asked = Asked(unit=replace(UNIT, sass=(*UNIT.sass, "OMMA.SF")))
    with Stores(load(ROOT), Place(cache.root())) as stores:
        (one,) = check.check(stores, asked).results
    assert one.problem == "no OMMA.SF in its code for sm_121a", one.problem
    assert one.state is State.LACKS
    assert [name for name in UNIT.sass if not one.named[name]] == []
    # A tile of 128 x 32 x 128 in steps of 16 x 8 x 32 by eight warps; a dequantized path would be HMMA.
    assert one.named["QMMA.SF.E2M1.E4M3.E8"] >= 128 * 32 * 128 // (16 * 8 * 32) // 8
    assert not any(name.startswith("HMMA") for name in one.instructions)
