# SPDX-License-Identifier: Apache-2.0
"""The series nvfp4: how vLLM loads NVFP4 experts, what it asks FlashInfer's b12x MoE for, and which kernels it refuses.

Loading, conversion and selection are the upstream's own and run on the CPU, on a faked platform. What stands in for compiled
code follows its documentation: FlashInfer's b12x MoE multiplies the output of each GEMM by a scale for each expert.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import nvfp4
import pytest
import support
import torch

with support.quiet():
    import vllm.model_executor.kernels.linear.nvfp4.flashinfer as flashinfer_linear
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_b12x_moe as b12x
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_cutlass_moe as flashinfer_cutlass_moe
    import vllm.model_executor.layers.fused_moe.experts.marlin_moe as marlin_moe
    import vllm.model_executor.layers.quantization.utils.flashinfer_fp4_moe as preparing
    import vllm.model_executor.layers.quantization.utils.nvfp4_utils as nvfp4_utils
    from vllm.config import KernelConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.kernels.linear import init_nvfp4_linear_kernel
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.config import (
        FusedMoEConfig,
        FusedMoEParallelConfig,
        RoutingMethodType,
        nvfp4_moe_quant_config,
    )
    from vllm.model_executor.layers.fused_moe.oracle import nvfp4 as oracle
    from vllm.model_executor.layers.fused_moe.oracle.nvfp4 import NvFp4MoeBackend, select_nvfp4_moe_backend
    from vllm.model_executor.layers.quantization import modelopt
    from vllm.model_executor.layers.quantization.utils.quant_utils import kNvfp4Dynamic, kNvfp4Static

TRTLLM = "vllm/refuse-flashinfer-s-trtllm-nvfp4-gemm-outside-sm10x.patch"
PADDING = "vllm/pad-gated-nvfp4-experts-for-flashinfer-s-and-vllm-s-cutlass-moe.patch"
HALVES = "vllm/keep-both-global-scales-of-nvfp4-gate-and-up-projections.patch"
COPIES = "vllm/pad-nvfp4-experts-for-flashinfer-s-b12x-moe-once-while-they-load.patch"
BLOCKS = "vllm/keep-nvfp4-block-scales-as-loaded-in-flashinfer-s-b12x-moe.patch"
CAPACITY = "vllm/size-flashinfer-s-b12x-moe-for-the-tokens-of-all-data-parallel-ranks.patch"
BUFFERS = "vllm/share-the-buffers-of-flashinfer-s-b12x-moe-among-layers.patch"

PROVES = {
    TRTLLM: [
        "test_sm12x_refuses_the_trtllm_gemm",
        "tests/kernels/quantization/test_nvfp4_kernel_selection.py::test_trtllm_kernel_requires_sm10x",
    ],
    PADDING: [
        "test_padded_experts_answer_as_unpadded_ones",
        "tests/kernels/moe/test_nvfp4_moe_intermediate_padding.py::test_gate_and_up_are_padded_separately",
        "tests/kernels/moe/test_nvfp4_moe_intermediate_padding.py::test_the_padded_size_of_experts_without_a_gate_is_recorded",
    ],
    COPIES: [
        "test_b12x_gets_experts_that_it_need_not_pad",
        "tests/kernels/moe/test_nvfp4_b12x_moe_padding.py::test_intermediate_size_is_a_multiple_of_256",
    ],
    HALVES: [
        "test_gate_and_up_with_different_scales_answer_as_the_checkpoint_says",
        "test_a_range_for_the_experts_of_all_ranks_costs_small_activations_only",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_linear_up_is_exact",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_clamped_up_keeps_its_magnitude",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_equal_scales_change_nothing",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_an_expert_without_weights_stays_zero",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_scales_of_other_ranks_experts_cover_the_largest_ratio",
        "tests/kernels/moe/test_nvfp4_w13_global_scales.py::test_every_loader_merges",
    ],
    BLOCKS: [
        "test_b12x_keeps_the_block_scales",
        "test_b12x_answers_as_the_checkpoint_says",
        "tests/kernels/moe/test_flashinfer_b12x_scales.py::test_the_kernel_gets_the_scales_of_the_checkpoint",
        "tests/kernels/moe/test_flashinfer_b12x_scales.py::test_inputs_are_quantized_by_block",
    ],
    CAPACITY: ["tests/kernels/moe/test_flashinfer_b12x_capacity.py::test_tokens_of_all_data_parallel_ranks_fit"],
    BUFFERS: [
        "tests/kernels/moe/test_flashinfer_b12x_buffers.py::test_layers_of_one_shape_share_their_buffers",
        "tests/kernels/moe/test_flashinfer_b12x_buffers.py::test_buffers_outlive_the_layer_that_allocated_them",
    ],
}
UPSTREAM_TESTS = ["tests/quantization/test_trtllm_nvfp4_hidden_dim_padding.py"]
UPSTREAM_ARGS = ["-p", "support", "--noconftest"]

pytestmark = pytest.mark.filterwarnings("ignore")

DEVIATIONS = [0.01, 0.02, 0.04]
"""Of Gaussian weights, as those of trained models."""
Gpu = Callable[[int, int], None]


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A CUDA platform on which FlashInfer is installed."""
    monkeypatch.setattr(flashinfer_linear, "has_flashinfer", lambda: True)
    return functools.partial(support.fake_gpu, monkeypatch)


def random(*shape: int, deviation: float = 0.02, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * deviation


# Dense layers


@pytest.mark.parametrize("capability", [(12, 0), (12, 1), (9, 0)])
def test_sm12x_refuses_the_trtllm_gemm(gpu: Gpu, capability: tuple[int, int]) -> None:
    """refuse-flashinfer-s-trtllm-…: a flag that cannot work is refused with the reason while the model is built."""
    gpu(*capability)
    config = VllmConfig(kernel_config=KernelConfig(linear_backend="flashinfer_trtllm"))
    with set_current_vllm_config(config), pytest.raises(ValueError, match="trtllm requires sm_10x"):
        init_nvfp4_linear_kernel()


def test_sm100_keeps_the_trtllm_gemm(gpu: Gpu) -> None:
    """refuse-flashinfer-s-trtllm-…: nothing changes where the kernel exists."""
    gpu(10, 3)
    config = VllmConfig(kernel_config=KernelConfig(linear_backend="flashinfer_trtllm"))
    with set_current_vllm_config(config):
        assert type(init_nvfp4_linear_kernel()) is flashinfer_linear.FlashInferTrtllmNvFp4LinearKernel


# Experts: sizes


def checkpoint(count: int, hidden: int, size: int, deviation: float = 0.02) -> SimpleNamespace:
    """Gated experts in NVFP4, as ModelOpt writes them, and their dequantized weights."""
    w13, w13_scale, w13_shared = nvfp4.quantize(random(count, 2 * size, hidden, deviation=deviation))
    w2, w2_scale, w2_shared = nvfp4.quantize(random(count, hidden, size, deviation=deviation, seed=1))
    return SimpleNamespace(
        w13=w13,
        w13_scale=w13_scale,
        w13_shared=w13_shared,
        w2=w2,
        w2_scale=w2_scale,
        w2_shared=w2_shared,
        values=(nvfp4.dequantize(w13, w13_scale, w13_shared), nvfp4.dequantize(w2, w2_scale, w2_shared)),
    )


@pytest.mark.parametrize("backend", ["FLASHINFER_CUTLASS", "FLASHINFER_B12X", "VLLM_CUTLASS"])
@pytest.mark.parametrize("size", [352, 160, 96, 128])
def test_padded_experts_answer_as_unpadded_ones(monkeypatch: pytest.MonkeyPatch, backend: str, size: int) -> None:
    """pad-gated-nvfp4-experts-…: what the kernel reads, with its tiles of scales, computes what the checkpoint says."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    given = checkpoint(2, 64, size)
    config = SimpleNamespace(moe_parallel_config=SimpleNamespace(enable_eplb=False), intermediate_size_per_partition=size)
    layer = SimpleNamespace(activation=MoEActivation.SILU, moe_config=config)
    w13, w13_scale, shared, _, w2, w2_scale, w2_shared, _ = preparing.prepare_nvfp4_moe_layer_for_fi_or_cutlass(
        backend=NvFp4MoeBackend[backend],
        layer=layer,
        w13=given.w13.clone(),
        w13_scale=given.w13_scale.clone(),
        w13_scale_2=given.w13_shared,
        a13_scale=torch.ones(2, 2),
        w2=given.w2.clone(),
        w2_scale=given.w2_scale.clone(),
        w2_scale_2=given.w2_shared,
        a2_scale=torch.ones(2),
        is_act_and_mul=True,
    )
    rows, columns = w13.shape[1], w2.shape[2] * 2
    assert rows % 128 == 0
    assert rows == 2 * columns == 2 * layer.moe_config.intermediate_size_per_partition
    read13 = nvfp4.dequantize(w13, nvfp4.from_tiles(w13_scale)[:, :rows], shared)
    read2 = nvfp4.dequantize(w2, nvfp4.from_tiles(w2_scale)[:, :64, : columns // 16], w2_shared)
    if backend != "VLLM_CUTLASS":  # FlashInfer's kernels want up before gate
        read13 = read13.roll(columns, 1)
    hidden = random(5, 64, deviation=1.0, seed=2)
    torch.testing.assert_close(nvfp4.experts(read13, read2, hidden), nvfp4.experts(*given.values, hidden))


@pytest.mark.parametrize("size", [1856, 928, 320])
def test_b12x_gets_experts_that_it_need_not_pad(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """pad-nvfp4-experts-…: FlashInfer pads others to a multiple of 256, and keeps them twice; Nemotron-3 has no gate."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    w13, w13_scale, w13_shared = nvfp4.quantize(random(1, size, 64))
    w2, w2_scale, w2_shared = nvfp4.quantize(random(1, 64, size, seed=1))
    config = SimpleNamespace(moe_parallel_config=SimpleNamespace(enable_eplb=False), intermediate_size_per_partition=size)
    prepared = preparing.prepare_nvfp4_moe_layer_for_fi_or_cutlass(
        backend=NvFp4MoeBackend.FLASHINFER_B12X,
        layer=SimpleNamespace(activation=MoEActivation.RELU2_NO_MUL, moe_config=config),
        w13=w13.clone(),
        w13_scale=w13_scale.clone(),
        w13_scale_2=w13_shared,
        a13_scale=torch.ones(1, 1),
        w2=w2.clone(),
        w2_scale=w2_scale.clone(),
        w2_scale_2=w2_shared,
        a2_scale=torch.ones(1),
        is_act_and_mul=False,
    )
    rows = prepared[0].shape[1]
    assert rows % 256 == 0
    assert rows == prepared[4].shape[2] * 2 == config.intermediate_size_per_partition
    hidden = random(5, 64, deviation=1.0, seed=2)
    answers = [
        (hidden @ nvfp4.dequantize(*up).mT).relu().square() @ nvfp4.dequantize(*down).mT
        for up, down in (
            ((w13, w13_scale, w13_shared), (w2, w2_scale, w2_shared)),
            (
                (prepared[0], nvfp4.from_tiles(prepared[1])[:, :rows], w13_shared),
                (prepared[4], nvfp4.from_tiles(prepared[5])[:, :64, : rows // 16], w2_shared),
            ),
        )
    ]
    torch.testing.assert_close(*answers)


# Experts: scales


def moe_config(count: int = 2, hidden: int = 64, size: int = 32, **settings: Any) -> FusedMoEConfig:
    config = FusedMoEConfig(
        num_experts=count,
        experts_per_token=count,
        hidden_dim=hidden,
        intermediate_size=size,
        num_local_experts=count,
        num_logical_experts=count,
        moe_parallel_config=FusedMoEParallelConfig.make_no_parallel(),
        activation=MoEActivation.SILU,
        in_dtype=torch.bfloat16,
        device="cpu",
        routing_method=RoutingMethodType.TopK,
        max_num_tokens=64,
    )
    for name, value in settings.items():
        setattr(config, name, value)
    return config


class Loaded(Exception):
    """Raised in place of the conversion for a kernel, with what it got."""


@pytest.mark.parametrize("factor", [10.0, 0.1, 1.2547])
def test_gate_and_up_with_different_scales_answer_as_the_checkpoint_says(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    """keep-both-global-scales-…: one scale for each expert is what a kernel has for the output of its first GEMM."""
    count, hidden, size = 3, 64, 48
    gate = nvfp4.quantize(random(count, size, hidden))
    up = nvfp4.quantize(random(count, size, hidden, deviation=0.02 * factor, seed=3))
    w2 = nvfp4.quantize(random(count, hidden, size, seed=1))
    layer = torch.nn.Module()
    values = {
        "w13_weight": torch.cat([gate[0], up[0]], 1),
        "w13_weight_scale": torch.cat([gate[1], up[1]], 1),
        "w13_weight_scale_2": torch.stack([gate[2], up[2]], 1),
        "w2_weight": w2[0],
        "w2_weight_scale": w2[1],
        "w2_weight_scale_2": w2[2],
        "w13_input_scale": torch.ones(count, 2),
        "w2_input_scale": torch.ones(count),
    }
    for name, value in values.items():
        setattr(layer, name, torch.nn.Parameter(value, requires_grad=False))

    def convert(**given: Any) -> None:
        raise Loaded(given)

    monkeypatch.setattr(modelopt, "convert_to_nvfp4_moe_kernel_format", convert)
    method = modelopt.ModelOptNvFp4FusedMoE.__new__(modelopt.ModelOptNvFp4FusedMoE)
    vars(method).update(moe=moe_config(count), nvfp4_backend=NvFp4MoeBackend.MARLIN, per_token_activation=False, use_a16=False)
    with pytest.raises(Loaded) as loaded:
        method.process_weights_after_loading(layer)
    given = loaded.value.args[0]

    tokens = random(5, hidden, deviation=1.0, seed=2)
    wanted = nvfp4.experts(torch.cat([nvfp4.dequantize(*gate), nvfp4.dequantize(*up)], 1), nvfp4.dequantize(*w2), tokens)
    read13 = nvfp4.dequantize(given["w13"], given["w13_scale"], given["w13_scale_2"])
    answer = nvfp4.experts(read13, nvfp4.dequantize(given["w2"], given["w2_scale"], given["w2_scale_2"]), tokens)
    assert nvfp4.error(answer, wanted) < 1e-5


@pytest.mark.parametrize(("smaller", "least", "most"), [(1, 0.97, 1.03), (100, 0.97, 1.03), (5000, 2.5, 3.5)])
def test_a_range_for_the_experts_of_all_ranks_costs_small_activations_only(smaller: int, least: float, most: float) -> None:
    """keep-both-global-scales-…: the range of the second GEMM's input is up to gate / up too wide with expert parallelism."""
    hidden = torch.nn.functional.silu(random(1, 64, 1024, deviation=1.0)) * random(1, 64, 1024, deviation=1.0, seed=1)
    _, calibrated = nvfp4.scales(hidden)
    gate = torch.ones(3)
    halves = torch.stack([gate, gate / torch.tensor([10.0, 1.0, 3.0])], 1)
    blocks = torch.ones(3, 64, 4, dtype=torch.float8_e4m3fn)
    # The checkpoint has input scales of twelve experts; this rank has three of them.
    *_, wide = oracle.merge_nvfp4_w13_global_scales(moe_config(3), blocks, halves, gate, calibrated.repeat(12))
    torch.testing.assert_close(wide, 10 * calibrated.repeat(12))
    tokens = hidden / smaller
    before, after = (
        nvfp4.error(nvfp4.dequantize(*nvfp4.quantize(tokens, shared)), tokens) for shared in (calibrated, wide[:1])
    )
    assert least < after / before < most


# FlashInfer's b12x MoE


class Wrapper:
    """FlashInfer's B12xMoEWrapper, by its documentation: scales of blocks in tiles, a multiplier for each expert and GEMM.

    Activations are not quantized here, so its error is that of the weights alone.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self._static_workspace = self._dynamic_workspace = self._moe_output = None

    def run(
        self,
        x: torch.Tensor,
        w1_weight: torch.Tensor,
        w1_weight_sf: torch.Tensor,
        w2_weight: torch.Tensor,
        w2_weight_sf: torch.Tensor,
        token_selected_experts: torch.Tensor,
        token_final_scales: torch.Tensor,
        *,
        w1_alpha: torch.Tensor,
        w2_alpha: torch.Tensor,
        fc2_input_scale: torch.Tensor | None = None,
        input_global_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        # Without a scale of its own, the input is quantized by w1_alpha: too small a number leaves nothing of it.
        input_scale = w1_alpha if input_global_scale is None else input_global_scale
        assert (input_scale == 1).all()
        assert fc2_input_scale is not None
        assert (fc2_input_scale == 1).all()
        rows, columns = w1_weight.shape[1], w2_weight.shape[1]
        read1 = nvfp4.dequantize(w1_weight, nvfp4.from_tiles(w1_weight_sf)[:, :rows], w1_alpha)
        read2 = nvfp4.dequantize(w2_weight, nvfp4.from_tiles(w2_weight_sf)[:, :columns, : w2_weight.shape[2] // 8], w2_alpha)
        answers = nvfp4.experts(read1.roll(rows // 2, 1), read2, x.float())
        tokens = torch.arange(len(x))[:, None]
        chosen = answers[token_selected_experts.long(), tokens]
        return (chosen * token_final_scales[..., None]).sum(1).to(x.dtype)


def b12x_experts(
    monkeypatch: pytest.MonkeyPatch, count: int, hidden: int, size: int, deviation: float
) -> tuple[SimpleNamespace, SimpleNamespace, Any]:
    """A checkpoint's experts, the layer that vLLM makes of them for this kernel, and the kernel's caller."""
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    monkeypatch.setattr(
        b12x,
        "flashinfer_convert_sf_to_mma_layout",
        lambda scales, num_groups, **_: scales.reshape(num_groups, -1, scales.shape[-1]),
    )
    given = checkpoint(count, hidden, size, deviation)
    config = moe_config(count, hidden, size)
    layer = SimpleNamespace(activation=MoEActivation.SILU, moe_config=config)
    w13, w13_scale, w13_shared, a13, w2, w2_scale, w2_shared, a2 = preparing.prepare_nvfp4_moe_layer_for_fi_or_cutlass(
        backend=NvFp4MoeBackend.FLASHINFER_B12X,
        layer=layer,
        w13=given.w13.clone(),
        w13_scale=given.w13_scale.clone(),
        w13_scale_2=given.w13_shared.clone(),
        a13_scale=torch.ones(count, 2),
        w2=given.w2.clone(),
        w2_scale=given.w2_scale.clone(),
        w2_scale_2=given.w2_shared.clone(),
        a2_scale=torch.ones(count),
        is_act_and_mul=True,
    )
    for name, value in {
        "w13_weight": w13,
        "w2_weight": w2,
        "w13_weight_scale": w13_scale,
        "w2_weight_scale": w2_scale,
        "w13_weight_scale_2": w13_shared,
        "w2_weight_scale_2": w2_shared,
    }.items():
        setattr(layer, name, torch.nn.Parameter(value, requires_grad=False))
    scales = {
        "g1_alphas": layer.w13_weight_scale_2,
        "g2_alphas": layer.w2_weight_scale_2,
        "a1_gscale": 1 / a13,
        "a2_gscale": 1 / a2,
        "w1_scale": layer.w13_weight_scale,
        "w2_scale": layer.w2_weight_scale,
    }
    experts = b12x.FlashInferB12xExperts(config, nvfp4_moe_quant_config(**scales))
    experts.process_weights_after_loading(layer)
    return given, layer, experts


def rounded_again(block: torch.Tensor, shared: torch.Tensor) -> tuple[float, float]:
    """What it costs to put the global scale into the block scales: the share of subnormal ones, and their mean error."""
    wanted = block.float() * shared.view(-1, 1, 1)
    again = wanted.to(torch.float8_e4m3fn).float()
    return float((again < 2**-6).float().mean()), float(((again - wanted).abs() / wanted).mean())


@pytest.mark.parametrize(("deviation", "subnormal", "error"), [(0.01, 1.00, 0.157), (0.02, 1.00, 0.074), (0.04, 0.68, 0.037)])
def test_what_rounding_block_scales_again_costs(deviation: float, subnormal: float, error: float) -> None:
    """keep-nvfp4-block-scales-…: the numbers of its message, by the release's own formula."""
    block, shared = nvfp4.scales(random(1, 2048, 1024, deviation=deviation))
    measured = rounded_again(block, shared)
    assert measured == (pytest.approx(subnormal, abs=0.01), pytest.approx(error, abs=0.002))


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_b12x_keeps_the_block_scales(monkeypatch: pytest.MonkeyPatch, deviation: float) -> None:
    """keep-nvfp4-block-scales-…: the mean error of a scale is 0, where the release has 16, 7 and 4 %."""
    given, layer, experts = b12x_experts(monkeypatch, 2, 128, 256, deviation)
    for scale, alpha, block, shared in (
        (nvfp4.from_tiles(layer.w13_weight_scale)[:, :512].roll(256, 1), experts.g1_alphas, given.w13_scale, given.w13_shared),
        (nvfp4.from_tiles(layer.w2_weight_scale)[:, :128, :16], experts.g2_alphas, given.w2_scale, given.w2_shared),
    ):
        wanted = block.float() * shared.view(-1, 1, 1)
        errors = (scale.float() * alpha.view(-1, 1, 1) - wanted).abs() / wanted
        assert errors.mean() == 0, f"mean error of a block scale: {errors.mean():.1%}"


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_b12x_answers_as_the_checkpoint_says(monkeypatch: pytest.MonkeyPatch, deviation: float) -> None:
    """keep-nvfp4-block-scales-…: so do answers, but for BF16's rounding."""
    given, layer, experts = b12x_experts(monkeypatch, 2, 128, 256, deviation)
    experts._wrapper = Wrapper()
    hidden = random(5, 128, deviation=1.0, seed=2).bfloat16()
    output = torch.empty_like(hidden)
    weights = torch.rand(5, 2, generator=torch.Generator().manual_seed(4))
    experts.apply(
        output=output,
        hidden_states=hidden,
        w1=layer.w13_weight,
        w2=layer.w2_weight,
        topk_weights=weights,
        topk_ids=torch.tensor([[0, 1]]).repeat(5, 1),
        activation=MoEActivation.SILU,
        global_num_experts=2,
        expert_map=None,
        a1q_scale=None,
        a2_scale=None,
        workspace13=None,
        workspace2=None,
        expert_tokens_meta=None,
        apply_router_weight_on_input=False,
    )
    answers = nvfp4.experts(*given.values, hidden.float())
    wanted = (answers.transpose(0, 1) * weights[..., None]).sum(1)
    assert nvfp4.error(output, wanted) < 3e-3


# What docs/nvfp4.md says of the selection


@pytest.fixture(name="installed")
def _installed(monkeypatch: pytest.MonkeyPatch, gpu: Gpu) -> None:
    """A DGX Spark with FlashInfer and without the package b12x."""
    gpu(12, 1)
    monkeypatch.setattr(b12x, "has_flashinfer_b12x_moe", lambda: True)
    monkeypatch.setattr(flashinfer_cutlass_moe, "has_flashinfer_cutlass_fused_moe", lambda: True)
    monkeypatch.setattr(nvfp4_utils, "cutlass_fp4_supported", lambda: True)
    monkeypatch.setattr(marlin_moe, "is_fp4_marlin_supported", lambda: True, raising=False)


def selected(weights_only: bool = False, **settings: Any) -> str:
    """The backend for experts, or why there is none."""
    config = moe_config(size=128, hidden=256)
    for name, value in settings.items():
        setattr(config.moe_parallel_config if name in ("use_ep", "ep_size") else config, name, value)
    try:
        return select_nvfp4_moe_backend(config, kNvfp4Static, None if weights_only else kNvfp4Dynamic)[0].value
    except ValueError as refused:
        return str(refused)


@pytest.mark.usefixtures("installed")
def test_experts_run_by_flashinfer_s_cutlass() -> None:
    """With 4-bit activations; b12x is asked for by name, and refuses experts in parallel."""
    assert selected() == "FLASHINFER_CUTLASS"
    assert selected(moe_backend="flashinfer_b12x") == "FLASHINFER_B12X"
    assert selected(use_ep=True, ep_size=2) == "FLASHINFER_CUTLASS"
    assert "parallel config" in selected(moe_backend="flashinfer_b12x", use_ep=True, ep_size=2)


@pytest.mark.usefixtures("installed")
def test_experts_of_weights_only_checkpoints_run_by_marlin() -> None:
    """They keep activations in BF16."""
    assert selected(weights_only=True) == "MARLIN"


@pytest.mark.usefixtures("installed")
def test_dense_layers_run_by_flashinfer_s_cutlass() -> None:
    """And by Marlin where the checkpoint quantizes weights alone."""
    with set_current_vllm_config(VllmConfig()):
        assert type(init_nvfp4_linear_kernel()).__name__ == "FlashInferCutlassNvFp4LinearKernel"
        assert type(init_nvfp4_linear_kernel(use_a16=True)).__name__ == "MarlinNvFp4LinearKernel"
