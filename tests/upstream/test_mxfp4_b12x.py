# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-b12x: FlashInfer's MXFP4 GEMM for SM12x, which only its name selects, on a faked platform.

The fake ends at the platform's compute capability and at the question what is installed; selection, configuration and
command line are the upstream's own. FlashInfer's quantizer and GEMM are replaced by what their documentation says.
"""

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import mxfp4
import pytest
import support
import torch
from packaging.version import Version

with support.quiet():
    import vllm.model_executor.kernels.linear as linear_kernels
    import vllm.model_executor.kernels.linear.mxfp4.flashinfer as flashinfer_mxfp4
    import vllm.utils.flashinfer as flashinfer_utils
    from vllm.config import KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.config.utils import get_attr_docs
    from vllm.model_executor.kernels.linear import (
        MarlinMxFp4LinearKernel,
        MxFp4LinearKernel,
        init_mxfp4_linear_kernel,
    )
    from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Dynamic

B12X = "vllm/offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch"

PROVES = {
    B12X: [
        "test_flashinfer_b12x_is_chosen_by_name",
        "test_flashinfer_b12x_is_chosen_for_mxfp4_layers_alone",
        "test_flashinfer_b12x_is_refused_with_the_reason",
        "test_flashinfer_b12x_multiplies_mxfp4",
        "test_flashinfer_b12x_refuses_an_odd_input_size",
        "test_the_help_text_says_that_it_is_unmeasured",
        "tests/kernels/quantization/test_mxfp4_flashinfer_b12x.py::test_flashinfer_b12x_runs_mxfp4_by_name_on_sm12x",
    ],
}
UPSTREAM_TESTS = ["tests/kernels/quantization/test_mxfp4_kernel_selection.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

SM12X = [(12, 0), (12, 1)]

Gpu = Callable[[int, int], None]


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A CUDA platform on which FlashInfer is installed."""
    monkeypatch.setattr(flashinfer_mxfp4, "has_flashinfer_cutedsl", lambda: True)
    return functools.partial(support.fake_gpu, monkeypatch)


def make_linear_kernel(linear_backend: str = "auto", **settings: Any) -> MxFp4LinearKernel:
    config = VllmConfig(kernel_config=KernelConfig(linear_backend=linear_backend, **settings))
    with set_current_vllm_config(config):
        return init_mxfp4_linear_kernel(activation_quant_key=kMxfp4Dynamic)


def linear_kernel(linear_backend: str = "auto", **settings: Any) -> type:
    return type(make_linear_kernel(linear_backend, **settings))


B12X_KERNEL = "FlashInferB12xMxFp4LinearKernel"
Install = Callable[..., None]


@pytest.fixture(name="install")
def _install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """A FlashInfer of this version, with or without CuTe DSL, that finds this CUDA."""

    def install(version: str | None = "0.7.0.post1", *, cutedsl: bool = True, cuda: str = "13.0") -> None:
        module = importlib.import_module("vllm.model_executor.kernels.linear.mxfp4.flashinfer_b12x")
        monkeypatch.setattr(module, "_installed_version", {"flashinfer-python": version}.get)
        monkeypatch.setattr(module, "has_flashinfer_b12x_gemm", lambda: cutedsl)
        for name in ("flashinfer", "flashinfer.jit", "flashinfer.jit.cpp_ext"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.setattr(sys.modules["flashinfer.jit.cpp_ext"], "get_cuda_version", lambda: Version(cuda), raising=False)

    return install


@pytest.mark.parametrize("capability", SM12X)
@pytest.mark.parametrize("name", ["flashinfer_b12x", "flashinfer-b12x"])
def test_flashinfer_b12x_is_chosen_by_name(gpu: Gpu, install: Install, capability: tuple[int, int], name: str) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: --linear-backend flashinfer_b12x covers MXFP4."""
    gpu(*capability)
    install()
    assert linear_kernel(name).__name__ == B12X_KERNEL


def test_flashinfer_b12x_is_chosen_for_mxfp4_layers_alone(gpu: Gpu, install: Install) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: so does an override for one kind of layers."""
    gpu(12, 1)
    install()
    assert linear_kernel(linear_backend_per_quant={"mxfp4": "flashinfer_b12x"}).__name__ == B12X_KERNEL
    assert linear_kernel("flashinfer_b12x", linear_backend_per_quant={"mxfp4": "marlin"}) is MarlinMxFp4LinearKernel


@pytest.mark.parametrize("others", ["", "FlashInferMxFp4LinearKernel,MarlinMxFp4LinearKernel,EmulationMxfp4LinearKernel"])
@pytest.mark.parametrize("name", ["auto", "cutlass", "marlin", "b12x"])
def test_flashinfer_b12x_is_never_chosen_otherwise(
    gpu: Gpu, install: Install, monkeypatch: pytest.MonkeyPatch, name: str, others: str
) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: not even where every other kernel is disabled."""
    gpu(12, 1)
    if B12X_KERNEL in vars(linear_kernels):
        install()
    monkeypatch.setenv("VLLM_DISABLED_KERNELS", others)
    try:
        chosen = linear_kernel(name).__name__
    except ValueError as refused:
        chosen = str(refused)
    assert not chosen.startswith(B12X_KERNEL)


@pytest.mark.parametrize(
    ("capability", "installed", "reason"),
    [
        ((10, 0), {}, "runs on SM12x only"),
        ((9, 0), {}, "runs on SM12x only"),
        ((12, 1), {"version": None}, r"FlashInfer 0\.7\.0 or newer is required"),
        ((12, 1), {"version": "0.6.16.post1"}, r"FlashInfer 0\.7\.0 or newer is required"),
        ((12, 1), {"cutedsl": False}, "is CuTe DSL installed"),
        ((12, 1), {"cuda": "12.9"}, r"CUDA 13\.0 or newer is required, FlashInfer uses 12\.9"),
    ],
)
def test_flashinfer_b12x_is_refused_with_the_reason(
    gpu: Gpu, install: Install, capability: tuple[int, int], installed: dict[str, Any], reason: str
) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: what was asked for by name is not replaced in silence."""
    gpu(*capability)
    install(**installed)
    with pytest.raises(ValueError, match=f"{B12X_KERNEL}: .*{reason}"):
        linear_kernel("flashinfer_b12x")


@pytest.fixture(name="gemm")
def _gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashInfer's quantizer and GEMM, as their documentation describes what they take and give."""

    def quantizer(values: torch.Tensor, backend: str) -> tuple[torch.Tensor, torch.Tensor]:
        packed, scales = mxfp4.quantize(values)
        return packed, mxfp4.to_tiles(scales)

    def mm_fp4(
        a: torch.Tensor,
        b: torch.Tensor,
        a_descale: torch.Tensor,
        b_descale: torch.Tensor,
        alpha: torch.Tensor,
        out_dtype: torch.dtype,
        *,
        block_size: int,
        use_8x4_sf_layout: bool,
        backend: str,
        use_nvfp4: bool,
    ) -> torch.Tensor:
        assert (backend, use_nvfp4, block_size, use_8x4_sf_layout) == ("b12x", False, 32, False)
        assert b.stride(0) == 1  # column major
        rows, columns = a.shape[0], b.shape[1]
        blocks = 2 * a.shape[1] // block_size
        left = mxfp4.dequantize(a, mxfp4.from_tiles(a_descale, rows, blocks))
        right = mxfp4.dequantize(b.T, mxfp4.from_tiles(b_descale.T, columns, blocks))
        return (left @ right.T * alpha.double()).to(out_dtype)

    monkeypatch.setattr(flashinfer_utils, "flashinfer_mxfp4_quantize", quantizer)
    monkeypatch.setattr(flashinfer_utils, "flashinfer_mm_fp4", mm_fp4, raising=False)


def linear_layer(weight: torch.Tensor) -> torch.nn.Module:
    """What Mxfp4OnlineLinearMethod leaves to the kernel."""
    packed, scales = mxfp4.quantize(weight)
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(packed, requires_grad=False)
    layer.weight_scale = torch.nn.Parameter(scales, requires_grad=False)
    layer.output_size_per_partition, layer.input_size_per_partition = weight.shape
    return layer


@pytest.mark.usefixtures("gemm")
@pytest.mark.parametrize(("tokens", "rows", "columns"), [(1, 160, 2880), (130, 128, 128), (3, 96, 32)])
def test_flashinfer_b12x_multiplies_mxfp4(gpu: Gpu, install: Install, tokens: int, rows: int, columns: int) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: values, scales and their layout arrive where they belong."""
    gpu(12, 1)
    install()
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(rows, columns, generator=generator).bfloat16()
    inputs = torch.randn(tokens, columns, generator=generator).bfloat16()
    bias = torch.randn(rows, generator=generator).bfloat16()

    layer, kernel = linear_layer(weight), make_linear_kernel("flashinfer_b12x")
    kernel.process_weights_after_loading(layer)
    expected = mxfp4.rounded(inputs) @ mxfp4.rounded(weight).T
    for given in (None, bias):
        outputs = kernel.apply_weights(layer, inputs[None], given)
        assert outputs.shape == (1, tokens, rows)
        wanted = expected if given is None else expected + given.double()
        torch.testing.assert_close(outputs[0].double(), wanted, rtol=2**-7, atol=2**-4)


def test_flashinfer_b12x_refuses_an_odd_input_size(gpu: Gpu, install: Install) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: at load, not at the first forward pass."""
    gpu(12, 1)
    install()
    kernel, layer = make_linear_kernel("flashinfer_b12x"), linear_layer(torch.zeros(64, 64).bfloat16())
    layer.input_size_per_partition = 48
    with pytest.raises(ValueError, match="multiple of 32, got 48"):
        kernel.process_weights_after_loading(layer)


def test_using_it_warns(gpu: Gpu, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: who asks for it is told what is not known about it."""
    gpu(12, 1)
    install()
    said: list[str] = []
    kernel = make_linear_kernel("flashinfer_b12x")
    module = importlib.import_module(type(kernel).__module__)
    monkeypatch.setattr(module.logger, "warning_once", lambda message, *values: said.append(message % values))
    kernel.process_weights_after_loading(linear_layer(torch.zeros(64, 64).bfloat16()))
    (warning,) = said
    assert "Neither its speed nor its accuracy has been measured" in warning


def test_the_help_text_says_that_it_is_unmeasured() -> None:
    """offer-flashinfer-mxfp4-gemm-for-sm12x-by-name.patch: before anyone asks for it, too."""
    help_text = get_attr_docs(KernelConfig)["linear_backend"]  # what --help=linear-backend prints
    assert "W4A4, neither speed nor accuracy measured yet" in " ".join(help_text.split())
