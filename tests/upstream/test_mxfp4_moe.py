# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe: which kernels run MXFP4 experts, the sizes that they get, and their tiles.

Command line, selection, loading, conversion of the weights, routing's inputs and the call of the kernel are the
upstream's own and run on the CPU, on a faked platform. What stands in for compiled code follows its documentation:
vLLM's softmax over the chosen experts, FlashInfer's interleaving of scales and its fused MoE.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import mxfp4
import pytest
import support
import torch
from gpt_oss import MLP, configured, write_checkpoint

with support.quiet():
    import vllm._custom_ops as custom_ops
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_cutlass_moe as cutlass_moe
    import vllm.model_executor.layers.fused_moe.oracle.mxfp4 as oracle
    import vllm.v1.worker.workspace as workspace
    from vllm.config import VllmConfig
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import (
        Mxfp4MoeBackend,
        mxfp4_round_up_hidden_size_and_intermediate_size,
    )
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.models.gpt_oss import MLPBlock

PADDING = "vllm/round-marlin-experts-up-to-its-tiles-only.patch"
SWITCH = "vllm/let-flashinfer-cutlass-mean-the-variant-that-runs.patch"

PROVES = {
    PADDING: ["test_marlin_takes_gpt_oss_as_it_is", "test_marlin_rounds_up_to_its_tiles_only"],
    SWITCH: ["test_one_switch_runs_the_cutlass_moe", "test_rounding_activations_is_said"],
}
UPSTREAM_TESTS = [
    "tests/kernels/quantization/test_mxfp4_kernel_selection.py",
    "tests/kernels/moe/test_ocp_mx_moe.py",
]
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


# The MXFP8 x MXFP4 CUTLASS MoE

HIDDEN, INTERMEDIATE = 192, 160  # neither is a multiple of 128, as 2880 is none
SM12X = [(12, 0), (12, 1)]
SWITCHES = [
    ["--moe-backend", "flashinfer_cutlass"],
    ["--moe-backend", "flashinfer_cutlass_afp8"],
    ["--quantization-config", json.dumps({"moe": {"activation": "mxfp8"}})],
    ["--moe-backend", "flashinfer_cutlass", "--quantization-config", json.dumps({"moe": {"activation": "mxfp8"}})],
]
Configure = Callable[..., VllmConfig]


@pytest.fixture(name="configure")
def _configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Configure]:
    """A configuration from a command line, and from then on a GPU of this compute capability."""
    with ExitStack() as stack:

        def configure(*arguments: str, gpu: tuple[int, int], flashinfer: bool = True) -> VllmConfig:
            config = stack.enter_context(configured(tmp_path / "model", tmp_path / "store", *arguments))
            monkeypatch.setattr(cutlass_moe, "has_flashinfer_cutlass_fused_moe", lambda: flashinfer)
            support.fake_gpu(monkeypatch, *gpu)
            return config

        yield configure


@pytest.fixture(name="weights")
def _weights(tmp_path: Path) -> dict[str, torch.Tensor]:
    return write_checkpoint(tmp_path / "model", 128, hidden=HIDDEN, intermediate=INTERMEDIATE, layers=1)


@pytest.fixture(name="kernels")
def _kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is compiled, the memory statistics of a GPU, and the workspace that a worker provides."""
    modules = {name: ModuleType(name) for name in ("flashinfer", "flashinfer.fused_moe", "flashinfer.fused_moe.core")}
    vars(modules["flashinfer"])["block_scale_interleave"] = interleave
    vars(modules["flashinfer.fused_moe.core"])["ActivationType"] = ActivationType
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cutlass_moe, "flashinfer_cutlass_fused_moe", fused_moe)
    monkeypatch.setattr(custom_ops, "topk_softmax", choose_experts)
    for name in ("empty_cache", "max_memory_allocated"):
        monkeypatch.setattr(torch.accelerator, name, lambda: 0)
    workspace.init_workspace_manager(torch.device("cpu"))
    yield
    workspace.reset_workspace_manager()


ActivationType = IntEnum("ActivationType", "Gelu Relu Silu Swiglu Geglu SwigluBias Relu2 SwigluStep Identity")


def interleave(scales: torch.Tensor) -> torch.Tensor:
    """FlashInfer's block_scale_interleave: the 128x4 layout, expert by expert."""
    return torch.stack([mxfp4.to_tiles(of_expert) for of_expert in scales])


def choose_experts(
    weights: torch.Tensor, experts: torch.Tensor, _: torch.Tensor, scores: torch.Tensor, *__: Any, **___: Any
) -> None:
    """vLLM's topk_softmax, renormalized as gpt-oss wants it."""
    chosen, ids = scores.float().topk(weights.shape[1])
    weights.copy_(chosen.softmax(-1))
    experts.copy_(ids)


def swiglu(gate: torch.Tensor, up: torch.Tensor, alpha: float, beta: float, limit: float) -> torch.Tensor:
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + beta)


def fused_moe(**given: Any) -> None:
    """FlashInfer's cutlass_fused_moe for MXFP8 x MXFP4: rows of the first GEMM are up, then gate."""
    inputs, output, experts = given["input"], given["output"], given["token_selected_experts"]
    assert inputs.dtype == torch.float8_e4m3fn
    assert given["use_mxfp8_act_scaling"]
    assert given["activation_type"] is ActivationType.Swiglu
    scales = mxfp4.from_tiles(given["input_sf"], len(inputs), inputs.shape[1] // 32).double()
    values = inputs.double() * torch.exp2(scales - 127).repeat_interleave(32, 1)

    def matrix(name: str, place: int, expert: int) -> torch.Tensor:
        packed = given[name][expert].view(torch.uint8)
        rows, blocks = packed.shape[0], packed.shape[1] // 16
        assert rows % 128 == 0
        assert blocks % 4 == 0
        tiles = given["quant_scales"][place][expert].contiguous().view(torch.uint8)
        return mxfp4.dequantize(packed, mxfp4.from_tiles(tiles, rows, blocks))

    output.zero_()
    for token, of_token in enumerate(experts.tolist()):
        for place, expert in enumerate(of_token):
            parameters = [given[f"swiglu_{name}"][expert].item() for name in ("alpha", "beta", "limit")]
            first = matrix("fc1_expert_weights", 0, expert) @ values[token] + given["fc1_expert_biases"][expert].double()
            up, gate = first.chunk(2)
            hidden = swiglu(gate, up, *parameters)
            second = matrix("fc2_expert_weights", 2, expert) @ hidden + given["fc2_expert_biases"][expert].double()
            output[token] += (given["token_final_scales"][token, place] * second).to(output.dtype)


def experts_by_the_book(weights: dict[str, torch.Tensor], inputs: torch.Tensor) -> torch.Tensor:
    """gpt-oss's experts in double precision, from the checkpoint: rows alternate between gate and up."""
    of = {name: weights[f"{MLP}.{name}"] for name in ("router.weight", "router.bias")}
    scores = inputs.double() @ of["router.weight"].double().T + of["router.bias"].double()
    chosen, ids = scores.topk(2)
    outputs = torch.zeros(inputs.shape, dtype=torch.float64)
    for token, (shares, experts) in enumerate(zip(chosen.softmax(-1), ids.tolist(), strict=True)):
        for share, expert in zip(shares, experts, strict=True):
            part = {name: weights[f"{MLP}.experts.{name}"][expert] for name in PARTS}
            first = mxfp4.dequantize(part["gate_up_proj_blocks"].flatten(1), part["gate_up_proj_scales"])
            second = mxfp4.dequantize(part["down_proj_blocks"].flatten(1), part["down_proj_scales"])
            rows = first @ inputs[token].double() + part["gate_up_proj_bias"].double()
            hidden = swiglu(rows[::2], rows[1::2], 1.702, 1.0, 7.0)
            outputs[token] += share * (second @ hidden + part["down_proj_bias"].double())
    return outputs


PARTS = [f"{name}_proj_{part}" for name in ("gate_up", "down") for part in ("blocks", "scales", "bias")]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("capability", SM12X)
def test_one_switch_runs_the_cutlass_moe(
    configure: Configure, weights: dict[str, torch.Tensor], switch: list[str], capability: tuple[int, int]
) -> None:
    """let-flashinfer-cutlass-mean-the-variant-that-runs.patch: from the command line to the experts' output."""
    config = configure(*switch, gpu=capability)
    block = get_model(vllm_config=config).model.layers[0].mlp
    # Quarters up to 1 are MXFP8 as they are, so that nothing is rounded but the BF16 results.
    inputs = torch.randint(-4, 5, (5, HIDDEN), generator=torch.Generator().manual_seed(3)).bfloat16() / 4
    with set_forward_context(None, config, num_tokens=5):
        outputs = block(inputs).double()

    assert block.experts.routed_experts.quant_method.mxfp4_backend is Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8
    expected = experts_by_the_book(weights, inputs)
    assert outputs.shape == expected.shape
    assert (outputs - expected).norm() < 0.01 * expected.norm()
    assert (outputs - experts_by_the_book(weights, inputs.flip(-1))).norm() > 0.5 * expected.norm()  # so it tells them apart


def make_experts(config: VllmConfig) -> Mxfp4MoeBackend:
    """What a layer's experts choose while the model is being built."""
    return MLPBlock(config, 0, "model.layers.0.mlp").experts.routed_experts.quant_method.mxfp4_backend


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("capability", SM12X)
def test_nothing_chooses_the_cutlass_moe_by_itself(configure: Configure, capability: tuple[int, int]) -> None:
    """let-flashinfer-cutlass-mean-the-variant-that-runs.patch: without a switch it is Marlin, as before."""
    assert make_experts(configure(gpu=capability)) is Mxfp4MoeBackend.MARLIN


@pytest.mark.usefixtures("weights")
def test_sm90_keeps_bf16_activations(configure: Configure) -> None:
    """let-flashinfer-cutlass-mean-the-variant-that-runs.patch: where the BF16 variant runs, it is meant."""
    config = configure("--moe-backend", "flashinfer_cutlass", gpu=(9, 0))
    assert make_experts(config) is Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_BF16


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(
    ("name", "capability", "flashinfer", "reason"),
    [
        ("flashinfer_cutlass_afp8", (9, 0), True, "does not support quantization scheme .*f8e4m3fn"),
        ("flashinfer_cutlass_afp8", (8, 9), True, "does not support current device"),
        ("flashinfer_cutlass", (8, 9), True, "does not support current device"),
        ("flashinfer_cutlass", (12, 1), False, "does not support current device"),
        ("cutlass", (12, 1), True, "'cutlass' is not supported for MXFP4 MoE. Expected one of .*'flashinfer_cutlass'"),
    ],
)
def test_elsewhere_the_switch_is_refused(
    configure: Configure, name: str, capability: tuple[int, int], flashinfer: bool, reason: str
) -> None:
    """let-flashinfer-cutlass-mean-the-variant-that-runs.patch: what was asked for by name is not replaced in silence."""
    config = configure("--moe-backend", name, gpu=capability, flashinfer=flashinfer)
    with pytest.raises(ValueError, match=reason):
        make_experts(config)


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(
    ("switch", "capability", "said"),
    [(SWITCHES[0], (12, 1), True), (SWITCHES[0], (9, 0), False), (SWITCHES[1], (12, 1), False), (SWITCHES[3], (12, 1), False)],
)
def test_rounding_activations_is_said(
    configure: Configure,
    monkeypatch: pytest.MonkeyPatch,
    switch: list[str],
    capability: tuple[int, int],
    said: bool,
) -> None:
    """let-flashinfer-cutlass-mean-the-variant-that-runs.patch: in the log, where nobody has asked for it."""
    warnings: list[str] = []
    monkeypatch.setattr(oracle.logger, "warning_once", lambda message, *values: warnings.append(message % values))
    make_experts(configure(*switch, gpu=capability))
    assert any("activations are quantized to MXFP8" in warning for warning in warnings) is said
