# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe: the sizes that MXFP4 experts get, and the tiles of the kernels that read them."""

import os
import re
from pathlib import Path

import pytest
import support

with support.quiet():
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import (
        Mxfp4MoeBackend,
        mxfp4_round_up_hidden_size_and_intermediate_size,
    )

PADDING = "vllm/round-marlin-experts-up-to-its-tiles-only.patch"

PROVES = {PADDING: ["test_marlin_takes_gpt_oss_as_it_is", "test_marlin_rounds_up_to_its_tiles_only"]}
UPSTREAM_TESTS = ["tests/kernels/quantization/test_mxfp4_kernel_selection.py"]
UPSTREAM_ARGS = ["-p", "support"]

MARLIN = [Mxfp4MoeBackend.MARLIN, Mxfp4MoeBackend.BATCHED_MARLIN]


def rounded(backend: Mxfp4MoeBackend, hidden: int, intermediate: int) -> tuple[int, int]:
    return mxfp4_round_up_hidden_size_and_intermediate_size(backend, hidden, intermediate)


@pytest.mark.parametrize("backend", MARLIN)
def test_marlin_takes_gpt_oss_as_it_is(backend: Mxfp4MoeBackend) -> None:
    assert rounded(backend, 2880, 2880) == (2880, 2944)


@pytest.mark.parametrize("backend", MARLIN)
@pytest.mark.parametrize(("hidden", "expected"), [(2881, 2944), (65, 128), (4096, 4096), (7168, 7168)])
def test_marlin_rounds_up_to_its_tiles_only(backend: Mxfp4MoeBackend, hidden: int, expected: int) -> None:
    assert rounded(backend, hidden, 1000) == (expected, 1024)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (Mxfp4MoeBackend.FLASHINFER_TRTLLM_MXFP4_BF16, (3072, 2944)),
        (Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8, (2944, 2944)),
        (Mxfp4MoeBackend.EMULATION, (2880, 2880)),
    ],
)
def test_other_backends_keep_their_sizes(backend: Mxfp4MoeBackend, expected: tuple[int, int]) -> None:
    assert rounded(backend, 2880, 2880) == expected


def tiles(name: str) -> list[tuple[int, int]]:
    """The (k, n) tiles of one of Marlin's lists, as its source states them."""
    source = Path(os.environ["STACK_PROOF_TREE"], "csrc/moe/marlin_moe_wna16/ops.cu").read_text()
    found = re.search(rf"thread_config_t {name}\[\] = {{(.*?)}};", source, re.DOTALL)
    assert found is not None
    return [(int(k), int(n)) for k, n in re.findall(r"{(\d+), (\d+), \d+}", found[1])]


@pytest.mark.parametrize("batch", ["small_batch_thread_configs", "large_batch_thread_configs"])
@pytest.mark.parametrize("hidden", [2880, 2944, 3072, 4096])
def test_both_gemms_have_a_tile(batch: str, hidden: int) -> None:
    """Of the list for small batches and of that for large ones, at least one tile divides each GEMM's k and n."""
    rows, columns = rounded(Mxfp4MoeBackend.MARLIN, hidden, 2880)
    for k, n in ((rows, 2 * columns), (columns, rows)):
        assert [tile for tile in tiles(batch) if k % tile[0] == 0 and n % tile[1] == 0]
