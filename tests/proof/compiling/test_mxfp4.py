# SPDX-License-Identifier: Apache-2.0
"""One real instantiation on the carried tree: the smallest of FlashInfer's MXFP8 x MXFP4 kernels, by the real compiler."""

from dataclasses import replace
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model.series import Compiles
from stack.model.stack import load
from stack.proof.compiling import check, layers, toolkit
from stack.proof.compiling.check import CompileRequest, UnitOutcome
from stack.store import cache
from tests import keeping
from tests.keeping import Keep, Measured

ROOT = Path(__file__).parents[3]
# Weights on the wide side of the tile (`true`: operands swapped), 32 tokens on the narrow one: what decoding uses.
UNIT = Compiles(
    None,
    unit="gemm_sm120/group_gemm_mxfp4_groupwise_e4m3_bf16_sm120.cu",
    instantiation="( 128, 32, 128, true,",
    sass=("QMMA.SF.E2M1.E4M3.E8", "LDSM.U4x16P64TO8", "ACQBULK", "PREEXIT"),
)


@pytest.mark.kernels
def test_an_mxfp4_kernel_multiplies_in_fp4_with_block_scales(keep: Keep) -> None:
    # It multiplies FP4 by FP8, not by FP4: the other instruction is the negative control.
    asked = CompileRequest(unit=replace(UNIT, sass=(*UNIT.sass, "OMMA.SF")))
    with Stores(load(ROOT), Place(cache.root())) as stores:
        tree = layers.of(stores, stores.stack.pins.get("flashinfer")).tip
        found = keep({"tree": tree, **keeping.cuda(toolkit.find(cache.root()))}, lambda: compiled(stores, asked))
    assert found["problem"] == "no OMMA.SF in its code for sm_121a", found["problem"]
    assert found["state"] == UnitOutcome.LACKS
    assert [name for name in UNIT.sass if not found["named"][name]] == []
    # A tile of 128 x 32 x 128 in steps of 16 x 8 x 32 by eight warps; a dequantized path would be HMMA.
    assert found["named"]["QMMA.SF.E2M1.E4M3.E8"] >= 128 * 32 * 128 // (16 * 8 * 32) // 8
    assert not any(name.startswith("HMMA") for name in found["instructions"])


def compiled(stores: Stores, asked: CompileRequest) -> Measured:
    (one,) = check.check(stores, asked).results
    assert one.state is UnitOutcome.LACKS, one.problem  # else it was not compiled
    return {"problem": one.problem, "state": one.state, "named": dict(one.named), "instructions": dict(one.instructions)}
