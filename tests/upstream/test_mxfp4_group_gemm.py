# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe in FlashInfer: which tiles its grouped MXFP8 x MXFP4 GEMM has on SM120 and SM121.

The generator of sources and the check of arguments are the upstream's own; that the tiles compile is `stack compile-check`'s.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import support
import torch

with support.quiet():
    from flashinfer.gemm import gemm_base
    from flashinfer.jit import env as jit_env
    from flashinfer.jit.gemm import core

NARROW = "flashinfer/offer-8-and-16-columns-for-the-mxfp4-group-gemm-of-sm120.patch"

PROVES = {NARROW: ["test_both_are_generated_for_swapped_operands", "test_narrow_tiles_are_taken_with_swapped_operands"]}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

TREE = Path(jit_env.__file__).parents[2]
CALL = re.compile(r"^INSTANTIATE_GROUP_GEMM_MXFP4_GROUPWISE_SM120\(\s*128,\s*(\d+),\s*128,\s*(true|false),", re.MULTILINE)


@pytest.fixture(name="generated")
def _generated(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the sources that FlashInfer generates for SM120."""
    # Building a wheel copies this folder into the package; a source tree has it beside the package.
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", TREE / "csrc")
    core.gen_gemm_sm120_module()
    return jit_env.FLASHINFER_GEN_SRC_DIR / "gen_gemm_sm120"


def test_both_are_generated_for_swapped_operands(generated: Path) -> None:
    sources = sorted(generated.glob("group_gemm_mxfp4_groupwise_*_sm120.cu"))
    assert len(sources) >= 4
    for source in (one for one in sources if "e4m3" in one.name or "e5m2" in one.name):
        tiles = [(int(columns), swapped == "true") for columns, swapped in CALL.findall(source.read_text())]
        assert sorted(tiles) == [
            (8, True),
            (16, True),
            *((columns, swap) for columns in (32, 64, 128) for swap in (False, True)),
        ]


def test_the_dispatcher_asks_for_what_is_generated() -> None:
    text = (TREE / "csrc/group_gemm_mxfp4_groupwise_sm120.cu").read_text()
    chosen = {int(columns) for columns in re.findall(r"constexpr int TILE_N = (\d+);", text)}
    source = (TREE / "csrc/group_gemm_mxfp4_groupwise_sm120_kernel_inst.jinja").read_text()
    (offered,) = re.findall(r"for tile_n in \[([\d, ]+)\]", source)
    assert chosen == {int(columns) for columns in offered.split(",")}


@pytest.fixture(name="checked")
def _checked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The check of arguments, as on a GPU of SM121."""
    monkeypatch.setattr(gemm_base, "is_sm12x_supported", lambda _: True)

    def checked(**tile: Any) -> Any:
        bytes_ = {"dtype": torch.uint8}
        return gemm_base._check_group_gemm_mxfp8_mxfp4_nt_groupwise_problem_size(
            torch.zeros(8, 256, dtype=torch.float8_e4m3fn), torch.zeros(2, 128, 128, **bytes_), torch.zeros(256, 8, **bytes_),
            torch.zeros(2, 128, 8, **bytes_), torch.tensor([0, 4, 8], dtype=torch.int32), **tile,
        )  # fmt: skip

    return checked


@pytest.mark.parametrize("columns", [8, 16])
def test_narrow_tiles_are_taken_with_swapped_operands(checked: Any, columns: int) -> None:
    assert checked(tile_n=columns, swap_ab=True)
    with pytest.raises(ValueError, match=rf"tile_n must be .* but got {columns}"):
        checked(tile_n=columns, swap_ab=False)


def test_other_tiles_are_as_before(checked: Any) -> None:
    assert all(checked(tile_n=columns, swap_ab=swap) for columns in (32, 64, 128) for swap in (False, True))
    with pytest.raises(ValueError, match=r"tile_n must be .* but got 24"):
        checked(tile_n=24)
