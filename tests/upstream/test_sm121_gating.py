# SPDX-License-Identifier: Apache-2.0
"""The series sm121-gating: what vLLM selects on SM120 and SM121, on a faked platform.

The fake ends at the platform's compute capability, at the question whether FlashInfer is installed and at the network;
selection, configuration and command line are the upstream's own.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.kernels.linear.mxfp4.flashinfer as flashinfer_mxfp4
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_cutlass_moe as flashinfer_cutlass_moe
    import vllm.utils.flashinfer as flashinfer_utils
    from vllm.config import KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.kernels.linear import (
        FlashInferMxFp4LinearKernel,
        MarlinMxFp4LinearKernel,
        MxFp4LinearKernel,
        init_mxfp4_linear_kernel,
    )
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import (
        FusedMoEConfig,
        FusedMoEParallelConfig,
        RoutingMethodType,
    )
    from vllm.model_executor.layers.fused_moe.oracle.fp8 import map_fp8_backend
    from vllm.model_executor.layers.fused_moe.oracle.int8 import map_int8_backend
    from vllm.model_executor.layers.fused_moe.oracle.int_wna16 import map_wna16_backend
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend, select_mxfp4_moe_backend
    from vllm.model_executor.layers.fused_moe.oracle.mxfp8 import select_mxfp8_moe_backend
    from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import map_nvfp4_backend
    from vllm.model_executor.layers.fused_moe.oracle.unquantized import map_unquantized_backend
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with support.stubbed("flashinfer"):
        from vllm.v1.attention.backends.flashinfer import FlashInferBackend

LINEAR = "vllm/refuse-flashinfer-mxfp4-linear-kernel-on-sm12x.patch"
XQA = "vllm/support-xqa-decode-without-access-to-cubins.patch"
AFP8 = "vllm/accept-the-afp8-aliases-of-moe-backends.patch"

PROVES = {
    LINEAR: [
        "test_sm12x_runs_mxfp4_linear_layers_with_marlin",
        "test_sm12x_refuses_a_forced_flashinfer_backend",
        "test_a_given_capability_counts_instead_of_the_device",
        "tests/kernels/quantization/test_mxfp4_kernel_selection.py::test_flashinfer_kernel_is_not_supported_on_sm12x",
    ],
    XQA: [
        "test_xqa_decode_needs_no_cubins",
        "test_flashinfer_serves_sinks_offline",
        "tests/kernels/attention/test_use_trtllm_attention.py::test_supports_xqa_decode_without_artifactory",
    ],
    AFP8: [
        "test_kernel_config_accepts_the_alias",
        "test_command_line_accepts_the_alias",
        "test_alias_selects_mxfp8_activations",
        "tests/kernels/moe/test_ocp_mx_moe.py::test_moe_backend_accepts_names_with_mxfp8_activations",
    ],
}
UPSTREAM_TESTS = [
    "tests/kernels/quantization/test_mxfp4_kernel_selection.py",
    "tests/kernels/attention/test_use_trtllm_attention.py",
    "tests/kernels/moe/test_ocp_mx_moe.py",
    "tests/v1/spec_decode/test_draft_moe_backend_override.py",
]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

SM12X = [(12, 0), (12, 1)]
ALIASES = {
    "flashinfer_cutlass_afp8": Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8,
    "flashinfer_trtllm_afp8": Mxfp4MoeBackend.FLASHINFER_TRTLLM_MXFP4_MXFP8,
}

Gpu = Callable[[int, int], None]


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A CUDA platform on which FlashInfer is installed."""
    monkeypatch.setattr(flashinfer_mxfp4, "has_flashinfer_cutedsl", lambda: True)
    monkeypatch.setattr(flashinfer_cutlass_moe, "has_flashinfer_cutlass_fused_moe", lambda: True)
    return functools.partial(support.fake_gpu, monkeypatch)


# MXFP4 linear layers


def make_linear_kernel(linear_backend: str = "auto", **settings: Any) -> MxFp4LinearKernel:
    config = VllmConfig(kernel_config=KernelConfig(linear_backend=linear_backend, **settings))
    with set_current_vllm_config(config):
        return init_mxfp4_linear_kernel(activation_quant_key=kMxfp4Dynamic)


def linear_kernel(linear_backend: str = "auto", **settings: Any) -> type:
    return type(make_linear_kernel(linear_backend, **settings))


@pytest.mark.parametrize("capability", SM12X)
def test_sm12x_runs_mxfp4_linear_layers_with_marlin(gpu: Gpu, capability: tuple[int, int]) -> None:
    """refuse-flashinfer-mxfp4-linear-kernel-on-sm12x.patch: the default is a kernel that exists there."""
    gpu(*capability)
    assert linear_kernel() is MarlinMxFp4LinearKernel


def test_sm12x_refuses_a_forced_flashinfer_backend(gpu: Gpu) -> None:
    """refuse-flashinfer-mxfp4-linear-kernel-on-sm12x.patch: a forced backend is an error at selection, with a reason."""
    gpu(12, 1)
    with pytest.raises(ValueError, match=r"FlashInferMxFp4LinearKernel: .*SM12x"):
        linear_kernel("flashinfer_cutlass")


def test_a_given_capability_counts_instead_of_the_device(gpu: Gpu) -> None:
    """refuse-flashinfer-mxfp4-linear-kernel-on-sm12x.patch: the argument of is_supported is respected."""
    gpu(10, 0)
    assert FlashInferMxFp4LinearKernel.is_supported(121)[0] is False
    assert FlashInferMxFp4LinearKernel.is_supported(100)[0] is True
    gpu(12, 1)
    assert FlashInferMxFp4LinearKernel.is_supported()[0] is False
    assert FlashInferMxFp4LinearKernel.is_supported(103)[0] is True


@pytest.mark.parametrize("capability", [(10, 0), (10, 3)])
def test_sm100_keeps_the_flashinfer_kernel(gpu: Gpu, capability: tuple[int, int]) -> None:
    """refuse-flashinfer-mxfp4-linear-kernel-on-sm12x.patch: nothing changes where the kernel exists."""
    gpu(*capability)
    assert linear_kernel() is FlashInferMxFp4LinearKernel
    assert linear_kernel("flashinfer_cutlass") is FlashInferMxFp4LinearKernel
    assert linear_kernel("marlin") is MarlinMxFp4LinearKernel


# Attention


@pytest.fixture(name="requests_made")
def _requests_made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A machine without network and without flashinfer-cubin; the addresses that were asked for."""
    made: list[str] = []

    def get(url: str, **_: object) -> None:
        made.append(url)
        raise OSError("no network")

    def forget() -> None:
        flashinfer_utils.supports_trtllm_attention.cache_clear()
        flashinfer_utils.has_nvidia_artifactory.cache_clear()

    monkeypatch.setattr(flashinfer_utils.requests, "get", get)
    monkeypatch.setattr(flashinfer_utils, "has_flashinfer_cubin", lambda: False)
    forget()
    yield made
    forget()


@pytest.mark.parametrize("capability", [(9, 0), *SM12X])
def test_xqa_decode_needs_no_cubins(gpu: Gpu, requests_made: list[str], capability: tuple[int, int]) -> None:
    """support-xqa-decode-without-access-to-cubins.patch: decode is supported offline, prefill is not."""
    gpu(*capability)
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=False) is True
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=True) is False
    assert requests_made == []


def test_flashinfer_serves_sinks_offline(gpu: Gpu, requests_made: list[str]) -> None:
    """support-xqa-decode-without-access-to-cubins.patch: gpt-oss gets FlashInfer attention on an offline Spark."""
    gpu(12, 1)
    with set_current_vllm_config(VllmConfig()):
        assert FlashInferBackend.supports_sink() is True
    assert requests_made == []


@pytest.mark.parametrize("capability", [(10, 0), (10, 3)])
@pytest.mark.parametrize("is_prefill", [False, True])
def test_sm100_still_needs_cubins(
    gpu: Gpu,
    requests_made: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    is_prefill: bool,
) -> None:
    """support-xqa-decode-without-access-to-cubins.patch: TRTLLM kernels are downloaded, so SM100 is refused offline."""
    gpu(*capability)
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=is_prefill) is False
    assert len(requests_made) == 1

    monkeypatch.setattr(flashinfer_utils, "has_flashinfer_cubin", lambda: True)
    flashinfer_utils.supports_trtllm_attention.cache_clear()
    flashinfer_utils.has_nvidia_artifactory.cache_clear()
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=is_prefill) is True


@pytest.mark.parametrize("capability", [(8, 0), (8, 9)])
def test_older_devices_stay_unsupported(gpu: Gpu, requests_made: list[str], capability: tuple[int, int]) -> None:
    """support-xqa-decode-without-access-to-cubins.patch: no other device becomes supported."""
    gpu(*capability)
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=False) is False
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=True) is False


def test_batch_invariance_still_wins(gpu: Gpu, requests_made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """support-xqa-decode-without-access-to-cubins.patch: batch invariance is asked before the device."""
    gpu(12, 1)
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert flashinfer_utils.supports_trtllm_attention(is_prefill=False) is False


# MoE backends


def moe_config(moe_backend: str) -> FusedMoEConfig:
    """One MoE layer of gpt-oss-120b."""
    return FusedMoEConfig(
        num_experts=128,
        experts_per_token=4,
        hidden_dim=2880,
        intermediate_size=2880,
        num_local_experts=128,
        num_logical_experts=128,
        activation=MoEActivation.SWIGLUOAI,
        device="cpu",
        routing_method=RoutingMethodType.Renormalize,
        moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
        in_dtype=torch.bfloat16,
        moe_backend=moe_backend,
        has_bias=True,
    )


@pytest.mark.parametrize("name", [*ALIASES, "flashinfer-cutlass-afp8"])
def test_kernel_config_accepts_the_alias(name: str) -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: the configuration lets the name through."""
    assert KernelConfig(moe_backend=name).moe_backend == name.replace("-", "_")


@pytest.mark.parametrize("name", ALIASES)
def test_command_line_accepts_the_alias(name: str, tmp_path: Path) -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: so does the command line."""
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    arguments = parser.parse_args(["--model", str(tmp_path), "--moe-backend", name])
    assert EngineArgs.from_cli_args(arguments).moe_backend == name


def test_alias_selects_mxfp8_activations(gpu: Gpu) -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: from the configured name to the CUTLASS MoE on SM121."""
    gpu(12, 1)
    config = VllmConfig(kernel_config=KernelConfig(moe_backend="flashinfer_cutlass_afp8"))
    config.model_config = SimpleNamespace(quantization_config=None)
    with set_current_vllm_config(config):
        backend, experts = select_mxfp4_moe_backend(moe_config(config.kernel_config.moe_backend))
        assert backend is ALIASES["flashinfer_cutlass_afp8"]
        assert experts is flashinfer_cutlass_moe.FlashInferExperts


@pytest.mark.parametrize("name", ALIASES)
@pytest.mark.parametrize(
    "resolve",
    [map_fp8_backend, map_int8_backend, map_wna16_backend, map_nvfp4_backend, map_unquantized_backend],
)
def test_other_weights_refuse_the_alias(name: str, resolve: Callable[[str], object]) -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: an alias for other weights is a clear error where they are."""
    with pytest.raises(ValueError, match=rf"moe_backend='{name}' is not supported for .* MoE\. Expected one of"):
        resolve(name)


def test_mxfp8_weights_refuse_the_alias() -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: MXFP8 weights have no map, but the same answer."""
    with pytest.raises(ValueError, match=r"'flashinfer_cutlass_afp8' is not supported for MXFP8 MoE\. Expected one"):
        select_mxfp8_moe_backend(moe_config("flashinfer_cutlass_afp8"))


def test_unknown_backends_stay_refused() -> None:
    """accept-the-afp8-aliases-of-moe-backends.patch: the list of names is still a closed one."""
    with pytest.raises(ValueError, match="moe_backend"):
        KernelConfig(moe_backend="flashinfer_cutlass_afp4")
