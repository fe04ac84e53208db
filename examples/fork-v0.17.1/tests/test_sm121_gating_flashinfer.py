# SPDX-License-Identifier: Apache-2.0
"""The series sm121-gating in FlashInfer: how the MoE's module is compiled. The generator is the upstream's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import support

with support.quiet():
    from flashinfer.jit import env as jit_env
    from flashinfer.jit import fused_moe

GDC = "flashinfer/compile-the-sm120-fused-moe-with-grid-dependency-control.patch"

PROVES = {GDC: ["test_the_sm120_moe_waits_for_the_kernel_before_it"]}

pytestmark = pytest.mark.filterwarnings("ignore")

FLAG = "-DCUTLASS_ENABLE_GDC_FOR_SM100"


@pytest.fixture(name="sources", autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Building a wheel copies this folder into the package; a source tree has it beside the package."""
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", Path(jit_env.__file__).parents[2] / "csrc")
    yield


def test_the_sm120_moe_waits_for_the_kernel_before_it() -> None:
    """compile-the-sm120-fused-moe-with-grid-dependency-control.patch: the flag reaches nvcc."""
    flags = fused_moe.gen_cutlass_fused_moe_sm120_module().extra_cuda_cflags
    assert [flag for flag in flags if flag.partition("=")[0] == FLAG and flag != f"{FLAG}=0"]


def test_the_flag_is_what_cutlass_asks_for_on_sm121() -> None:
    """compile-the-sm120-fused-moe-with-grid-dependency-control.patch: the vendored CUTLASS knows it, and 12.1."""
    header = support.TREE / "3rdparty/cutlass/include/cutlass/arch/grid_dependency_control.h"
    text = header.read_text()
    assert FLAG.removeprefix("-D") in text
    assert "__CUDA_ARCH__ == 1210" in text


def test_the_module_is_for_sm121() -> None:
    """compile-the-sm120-fused-moe-with-grid-dependency-control.patch: the flags of the device are as before."""
    flags = fused_moe.gen_cutlass_fused_moe_sm120_module().extra_cuda_cflags
    assert any("sm_121a" in flag for flag in flags)
    assert "-DCOMPILE_BLACKWELL_SM120_TMA_GROUPED_GEMMS" in flags
