# SPDX-License-Identifier: Apache-2.0
"""The series cpu-mxfp4: on which CPUs MXFP4 experts run.

The choice is the upstream's own, from the command line to the class of the experts; only what torch says of the CPU is made
up. That the kernel computes the right thing there is shown by the served model of the validation.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import support
import torch
from gpt_oss import configured, write_checkpoint

with support.quiet():
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
    from vllm.model_executor.models.gpt_oss import MLPBlock
    from vllm.platforms import CpuArchEnum, current_platform

PATCH = "vllm/support-mxfp4-experts-on-cpus-without-amx.patch"
PROVES = {
    PATCH: [
        "test_avx512_bf16_is_enough",
        "tests/kernels/moe/test_cpu_mxfp4_backend_selection.py::test_mxfp4_experts_need_avx512_bf16",
    ],
}
UPSTREAM_ARGS = ["-p", "support"]

AVX512 = ("avx2", "avx512_f", "avx512_vnni")
BF16 = (*AVX512, "avx512_bf16")
AMX = (*BF16, "amx_tile", "amx_bf16")

Chosen = Callable[..., Mxfp4MoeBackend]


@pytest.fixture(name="chosen")
def _chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chosen]:
    """What a layer's experts choose on a CPU with these instructions while the model is being built."""
    write_checkpoint(tmp_path / "model", 128, hidden=64, intermediate=64, layers=1)
    with ExitStack() as stack:

        def chosen(*instructions: str, architecture: CpuArchEnum = CpuArchEnum.X86) -> Mxfp4MoeBackend:
            monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(instructions, True))
            monkeypatch.setattr(type(current_platform), "get_cpu_architecture", classmethod(lambda cls: architecture))
            config = stack.enter_context(configured(tmp_path / "model", tmp_path / "store"))
            return MLPBlock(config, 0, "model.layers.0.mlp").experts.routed_experts.quant_method.mxfp4_backend

        yield chosen


def test_avx512_bf16_is_enough(chosen: Chosen) -> None:
    """support-mxfp4-experts-on-cpus-without-amx.patch: AMD's since Zen 4 have no AMX."""
    assert chosen(*BF16) is Mxfp4MoeBackend.CPU


def test_amx_serves_as_before(chosen: Chosen) -> None:
    """support-mxfp4-experts-on-cpus-without-amx.patch: every CPU with AMX has AVX512_BF16."""
    assert chosen(*AMX) is Mxfp4MoeBackend.CPU


@pytest.mark.parametrize("instructions", [(), ("avx2",), AVX512])
def test_less_is_refused(chosen: Chosen, instructions: tuple[str, ...]) -> None:
    """support-mxfp4-experts-on-cpus-without-amx.patch: the library with the kernel is not loaded there."""
    with pytest.raises(NotImplementedError, match="No MXFP4 MoE backend supports"):
        chosen(*instructions)


def test_other_architectures_are_refused(chosen: Chosen) -> None:
    """support-mxfp4-experts-on-cpus-without-amx.patch: the kernel is written for x86."""
    with pytest.raises(NotImplementedError, match="No MXFP4 MoE backend supports"):
        chosen(*BF16, architecture=CpuArchEnum.ARM)
