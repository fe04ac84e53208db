# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe: which kernels run MXFP4 experts, the sizes that they get, their tiles, and what runs the router.

Command line, selection, loading, conversion of the weights, routing's inputs and the call of the kernel are the
upstream's own and run on the CPU, on a faked platform. What stands in for compiled code follows its documentation:
vLLM's softmax over the chosen experts, FlashInfer's interleaving of scales, its fused MoE, its decode kernels and its
small GEMM.
"""

import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mxfp4
import pytest
import support
import torch
from flashinfer_decode import moe_decode, recorded, swiglu, tinygemm
from gpt_oss import EXPERTS, MLP, configured, write_checkpoint

with support.quiet():
    import vllm._custom_ops as custom_ops
    import vllm.model_executor.layers.fused_moe.experts.flashinfer_cutlass_moe as cutlass_moe
    import vllm.model_executor.layers.fused_moe.oracle.mxfp4 as oracle
    import vllm.model_executor.layers.linear as linear
    import vllm.utils.flashinfer as vllm_flashinfer
    import vllm.v1.worker.workspace as workspace
    from vllm.config import VllmConfig
    from vllm.forward_context import set_forward_context
    from vllm.model_executor.layers.fused_moe.config import RoutingMethodType
    from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import (
        Mxfp4MoeBackend,
        mxfp4_round_up_hidden_size_and_intermediate_size,
    )
    from vllm.model_executor.layers.fused_moe.router.gate_linear import GateLinear
    from vllm.model_executor.layers.linear import LinearMethodBase, UnquantizedLinearMethod
    from vllm.model_executor.model_loader import get_model
    from vllm.model_executor.models.gpt_oss import MLPBlock
    from vllm.utils.torch_utils import set_default_torch_dtype

PADDING = "vllm/round-marlin-experts-up-to-its-tiles-only.patch"
SWITCH = "vllm/let-flashinfer-cutlass-mean-the-variant-that-runs.patch"
DECODE = "vllm/run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch"
ALONE = "vllm/offer-the-mxfp4-decode-kernels-alone-by-name.patch"
ROUTER = "vllm/run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch"
CHOICE = "vllm/let-few-tokens-choose-experts-in-the-decode-kernels.patch"
PREFILL = "vllm/read-prompts-by-flashinfer-s-mxfp4-prefill-kernel-on-sm90.patch"

PROVES = {
    PADDING: [
        "test_marlin_takes_gpt_oss_as_it_is",
        "test_marlin_rounds_up_to_its_tiles_only",
        "tests/kernels/moe/test_ocp_mx_moe.py::test_marlin_mxfp4_rounds_up_to_its_tiles_only",
    ],
    SWITCH: [
        "test_one_switch_runs_the_cutlass_moe",
        "test_rounding_activations_is_said",
        "tests/kernels/moe/test_ocp_mx_moe.py::test_flashinfer_cutlass_means_the_mxfp4_variant_that_runs",
    ],
    DECODE: [
        "test_few_tokens_run_the_decode_kernels",
        "test_a_variable_forces_one_of_them",
        "test_nothing_is_padded_for_the_decode_kernels",
        "test_what_is_no_padding_is_read",
        "test_experts_of_other_ranks_are_left_out",
        "test_routing_weights_count_once",
        "test_what_runs_is_said",
        "test_what_the_decode_kernels_cannot_do_runs_as_before",
        "test_the_compiler_sees_one_operator",
        "test_the_decode_kernels_are_there_where_they_can_be_loaded",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_the_number_of_tokens_decides",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_the_variable_chooses_the_experts",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_an_unknown_value_is_refused",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_what_the_kernels_cannot_do_runs_by_cutlass",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_the_kernels_are_there_where_they_can_be_loaded",
    ],
    ALONE: [
        "test_the_decode_kernels_run_alone_by_name",
        "test_nothing_is_rounded_up_for_the_decode_kernels",
        "test_other_checkpoints_are_laid_out_for_them",
        "test_the_decode_kernels_alone_are_refused_with_the_reason",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_flashinfer_decode_selects_the_kernels_alone",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_flashinfer_decode_is_laid_out_without_padding",
    ],
    ROUTER: [
        "test_few_tokens_of_a_gate_run_the_small_gemm",
        "test_the_router_of_gpt_oss_runs_it",
        "test_what_else_a_gate_may_give_stays",
        "test_the_small_gemm_is_said",
        "test_other_gates_run_as_before",
        "test_without_the_small_gemm_gates_run_as_before",
        "test_a_quantized_gate_runs_as_before",
        "test_a_gemm_for_all_layers_runs_the_gate",
        "test_batches_stay_invariant",
        "test_a_gate_may_get_its_type_later",
        "test_the_small_gemm_is_there_where_it_can_be_compiled",
        "test_flashinfer_is_called_by_its_name",
        "test_a_graph_of_a_machine_that_has_the_small_gemm_runs_without_it",
        "test_the_compiler_sees_one_operator_of_the_gate",
        "test_where_it_has_not_run_the_small_gemm_is_opt_in",
        "tests/kernels/moe/test_tinygemm_router.py::test_few_tokens_run_the_small_gemm",
        "tests/kernels/moe/test_tinygemm_router.py::test_the_small_gemm_is_opt_in_where_it_is_unmeasured",
        "tests/kernels/moe/test_tinygemm_router.py::test_other_gates_run_as_before",
        "tests/kernels/moe/test_tinygemm_router.py::test_batch_invariance_wins",
        "tests/kernels/moe/test_tinygemm_router.py::test_the_small_gemm_is_there_where_it_can_be_compiled",
    ],
    PREFILL: [
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_many_tokens_run_the_prefill_kernel_on_sm90",
    ],
    CHOICE: [
        "test_few_tokens_choose_in_the_decode_kernels",
        "test_who_asks_for_the_choices_gets_them",
        "test_who_pads_a_batch_chooses_no_experts",
        "test_experts_that_are_chosen_may_be_elsewhere",
        "test_what_only_a_router_can_choose_is_refused",
        "test_a_weighted_input_has_one_choice",
        "test_who_chooses_is_said",
        "test_the_compiler_sees_the_choice_in_the_operator",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_router_logits_are_taken_where_the_kernels_can_choose",
        "tests/kernels/moe/test_flashinfer_mxfp4_decode_moe.py::test_few_tokens_choose_experts_in_the_kernels",
    ],
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


def fused_moe(**given: Any) -> None:
    """FlashInfer's cutlass_fused_moe for MXFP8 x MXFP4: rows of the first GEMM are up, then gate."""
    inputs, output, experts = given["input"], given["output"], given["token_selected_experts"]
    assert inputs.dtype == torch.float8_e4m3fn
    assert given["use_mxfp8_act_scaling"]
    assert given["activation_type"] is ActivationType.Swiglu
    scales = mxfp4.from_tiles(given["input_sf"], len(inputs), inputs.shape[1] // 32).double()
    values = inputs.double() * torch.exp2(scales - 127).repeat_interleave(32, 1)

    @functools.cache
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
    parts = [{name: weights[f"{MLP}.experts.{name}"][expert] for name in PARTS} for expert in range(EXPERTS)]
    firsts = [mxfp4.dequantize(part["gate_up_proj_blocks"].flatten(1), part["gate_up_proj_scales"]) for part in parts]
    seconds = [mxfp4.dequantize(part["down_proj_blocks"].flatten(1), part["down_proj_scales"]) for part in parts]
    for token, (shares, experts) in enumerate(zip(chosen.softmax(-1), ids.tolist(), strict=True)):
        for share, expert in zip(shares, experts, strict=True):
            part, first, second = parts[expert], firsts[expert], seconds[expert]
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


# The decode kernels

CUTLASS = SWITCHES[0]
Calls = list[tuple[str, int]]


@pytest.fixture(name="calls")
def _calls(kernels: None, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A FlashInfer that has the decode kernels; which of its kernels run, and with how many tokens."""
    calls: Calls = []
    module = importlib.import_module(EXPERTS_MODULE)
    monkeypatch.setattr(module, "has_flashinfer_mxfp4_moe_decode", lambda: True)
    monkeypatch.setattr(module, "has_flashinfer_cutlass_fused_moe", lambda: True)
    monkeypatch.setattr(module, "flashinfer_mxfp4_moe_decode", recorded(calls, "decode", moe_decode))
    monkeypatch.setattr(cutlass_moe, "flashinfer_cutlass_fused_moe", recorded(calls, "cutlass", fused_moe))
    return calls


EXPERTS_MODULE = "vllm.model_executor.layers.fused_moe.experts.flashinfer_mxfp4_decode_moe"


def some_inputs(tokens: int) -> torch.Tensor:
    """Quarters up to 1, which are MXFP8 as they are."""
    return torch.randint(-4, 5, (tokens, HIDDEN), generator=torch.Generator().manual_seed(3)).bfloat16() / 4


def check_block(block: MLPBlock, config: VllmConfig, weights: dict[str, torch.Tensor], tokens: int) -> None:
    """A layer gives what the checkpoint says, up to rounding to BF16."""
    inputs = some_inputs(tokens)
    with set_forward_context(None, config, num_tokens=tokens):
        outputs = block(inputs).double()
    expected = experts_by_the_book(weights, inputs)
    assert outputs.shape == expected.shape
    assert (outputs - expected).norm() < 0.01 * expected.norm()


def first_block(config: VllmConfig) -> MLPBlock:
    """The experts of a model that is loaded as vLLM loads it."""
    return get_model(vllm_config=config).model.layers[0].mlp


@pytest.mark.parametrize(("switch", "capability"), [(SWITCHES[0], (12, 0)), (SWITCHES[0], (12, 1)), (SWITCHES[2], (12, 1))])
def test_few_tokens_run_the_decode_kernels(
    configure: Configure, weights: dict[str, torch.Tensor], calls: Calls, switch: list[str], capability: tuple[int, int]
) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: up to 16; both kernels read one copy of the weights."""
    config = configure(*switch, gpu=capability)
    block = first_block(config)
    for tokens in (1, 16, 17):
        check_block(block, config, weights, tokens)
    assert calls == [("decode", 1), ("decode", 16), ("cutlass", 17)]
    assert block.experts.routed_experts.quant_method.mxfp4_backend is Mxfp4MoeBackend.FLASHINFER_CUTLASS_MXFP4_MXFP8


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("decode", [("decode", 1), ("decode", 16), ("decode", 16), ("decode", 3)]),
        ("prefill", [("cutlass", 1), ("cutlass", 35)]),
    ],
)
def test_a_variable_forces_one_of_them(
    configure: Configure,
    weights: dict[str, torch.Tensor],
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    expected: Calls,
) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: for batches of any size."""
    monkeypatch.setenv("VLLM_MXFP4_MOE_DECODE", value)
    config = configure(*CUTLASS, gpu=(12, 1))
    block = first_block(config)
    for tokens in (1, 35):
        check_block(block, config, weights, tokens)
    assert calls == expected


def test_an_unknown_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: not taken for auto."""
    monkeypatch.setenv("VLLM_MXFP4_MOE_DECODE", "both")
    with pytest.raises(ValueError, match=r"'both' for VLLM_MXFP4_MOE_DECODE.*'auto', 'decode', 'prefill'"):
        importlib.import_module(EXPERTS_MODULE).experts_for_cutlass_layout()


def test_nothing_is_padded_for_the_decode_kernels(configure: Configure, weights: dict[str, torch.Tensor], calls: Calls) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: whatever lies behind the weights, it is not read."""
    config = configure(*CUTLASS, gpu=(12, 1))
    block = first_block(config)
    layer = block.experts.routed_experts
    assert layer.w13_weight.shape == (EXPERTS, 512, 128)  # both sizes are rounded up to 256 for CUTLASS
    for rows in (layer.w13_weight[:, :256], layer.w13_weight[:, 256:]):
        rows[:, INTERMEDIATE:] = rows[:, :, HIDDEN // 2 :] = 0x77
    layer.w2_weight[:, HIDDEN:] = layer.w2_weight[:, :, INTERMEDIATE // 2 :] = 0x77
    layer.w2_bias[:, HIDDEN:] = torch.nan
    for biases in layer.w13_bias.chunk(2, 1):
        biases[:, INTERMEDIATE:] = 1
    blocks = mxfp4.places_in_tiles(256, 8)[:, INTERMEDIATE // 32 :].reshape(-1)
    layer.w2_weight_scale.view(EXPERTS, -1)[:, blocks] = 127
    for tokens in (1, 16):
        check_block(block, config, weights, tokens)
    with pytest.raises(AssertionError):  # so it would be seen
        check_block(block, config, weights, 17)
    assert [name for name, _ in calls] == ["decode", "decode", "cutlass"]


def test_what_is_no_padding_is_read(configure: Configure, weights: dict[str, torch.Tensor], calls: Calls) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: a rank's share may be wider than the model's size says."""
    config = configure(*CUTLASS, gpu=(12, 1))
    block = first_block(config)
    layer = block.experts.routed_experts
    experts = experts_by_ids(block)
    layer.quant_method.moe_kernel.fused_experts.process_weights_after_loading(layer)
    assert experts.intermediate_size == INTERMEDIATE
    layer.w2_weight[-1, -1, -1] = 1
    layer.quant_method.moe_kernel.fused_experts.process_weights_after_loading(layer)
    assert experts.intermediate_size == 256
    check_block(block, config, weights, 1)
    assert calls == [("decode", 1)]


def experts_by_ids(block: MLPBlock) -> Any:
    """A layer's experts that take ids, by themselves or within those that take logits."""
    experts = block.experts.routed_experts.quant_method.moe_kernel.fused_experts
    return getattr(experts, "by_ids", experts)


def apply_experts(block: MLPBlock, inputs: torch.Tensor, **given: Any) -> torch.Tensor:
    """What a layer's experts make of inputs that are routed already: all tokens to the first two, with the same weight."""
    layer = block.experts.routed_experts
    experts = experts_by_ids(block)
    output, tokens = torch.full_like(inputs, torch.nan), len(inputs)
    experts.apply(
        output=output,
        hidden_states=inputs,
        w1=layer.w13_weight,
        w2=layer.w2_weight,
        topk_weights=torch.full((tokens, 2), 0.5),
        topk_ids=torch.tensor([[0, 1]] * tokens),
        activation=layer.activation,
        global_num_experts=EXPERTS,
        a1q_scale=None,
        a2_scale=None,
        workspace13=None,
        workspace2=torch.empty(tokens, layer.w2_weight.shape[1], dtype=inputs.dtype),
        expert_tokens_meta=None,
        **{"expert_map": None, "apply_router_weight_on_input": False} | given,
    )
    return output.double()


@pytest.mark.usefixtures("weights", "calls")
def test_experts_of_other_ranks_are_left_out(configure: Configure) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: an expert map says which are here, and where."""
    block, inputs = first_block(configure(*CUTLASS, gpu=(12, 1))), some_inputs(3)
    maps = {name: torch.tensor(places, dtype=torch.int32) for name, places in MAPS.items()}
    outputs = {name: apply_experts(block, inputs, expert_map=one) for name, one in maps.items()}
    whole = apply_experts(block, inputs)
    assert torch.equal(outputs["all"], whole)
    assert torch.equal(outputs["none"], torch.zeros_like(whole))
    torch.testing.assert_close(outputs["first"] + outputs["second"], whole, rtol=0.01, atol=0.01 * whole.abs().max().item())
    assert not torch.allclose(outputs["swapped first"], outputs["first"], rtol=0.1)


MAPS = {
    "all": [0, 1, 2, 3],
    "none": [-1, -1, 0, 1],
    "first": [0, -1, -1, -1],
    "second": [-1, 1, -1, -1],
    "swapped first": [1, -1, -1, -1],
}


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize("tokens", [3, 17])
def test_routing_weights_count_once(configure: Configure, tokens: int) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: not again where the inputs were multiplied by them."""
    block, inputs = first_block(configure(*CUTLASS, gpu=(12, 1))), some_inputs(tokens)
    weighted, plain = (apply_experts(block, inputs, apply_router_weight_on_input=flag) for flag in (False, True))
    torch.testing.assert_close(plain, 2 * weighted, rtol=0.02, atol=0.01 * plain.abs().max().item())


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "auto",
            ["Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of up to 16 tokens, 'flashinfer_cutlass_fused_moe' above."],
        ),
        ("decode", ["Using 'flashinfer_mxfp4_moe_decode' for MXFP4 experts of all batches."]),
        ("prefill", []),
    ],
)
def test_what_runs_is_said(configure: Configure, monkeypatch: pytest.MonkeyPatch, value: str, said: list[str]) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: once, in words that the validation reads."""
    monkeypatch.setenv("VLLM_MXFP4_MOE_DECODE", value)
    lines: list[str] = []
    logger = importlib.import_module(EXPERTS_MODULE).logger
    monkeypatch.setattr(logger, "info_once", lambda message, *values, **_: lines.append(message % values))
    first_block(configure(*CUTLASS, gpu=(12, 1)))
    assert [line for line in lines if "choice" not in line] == said


@pytest.mark.parametrize(
    ("missing", "change", "reason"),
    [
        ("has_flashinfer_mxfp4_moe_decode", {}, "current device"),
        (None, {"experts_per_token": 9}, "more than 8 experts per token"),
        (None, {"hidden_dim_unpadded": 2900}, r"a hidden size \(2900\) that is no multiple of 32"),
        (None, {"in_dtype": torch.float16}, "float16 activations"),
    ],
)
@pytest.mark.usefixtures("weights", "calls")
def test_what_the_decode_kernels_cannot_do_runs_as_before(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, missing: str | None, change: dict[str, Any], reason: str
) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: by CUTLASS, and where they are forced it is refused."""
    if missing is not None:
        monkeypatch.setattr(importlib.import_module(EXPERTS_MODULE), missing, lambda: False)
    config = configure(*CUTLASS, gpu=(12, 1))
    moe = replace(MLPBlock(config, 0, "model.layers.0.mlp").experts.routed_experts.moe_config, **change)
    assert oracle.select_mxfp4_moe_backend(moe)[1] is cutlass_moe.FlashInferExperts
    monkeypatch.setenv("VLLM_MXFP4_MOE_DECODE", "decode")
    with pytest.raises(ValueError, match=reason):
        oracle.select_mxfp4_moe_backend(moe)


@pytest.mark.usefixtures("weights", "calls")
def test_sm100_keeps_cutlass(configure: Configure) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: nobody has compared them there."""
    block = MLPBlock(configure(*CUTLASS, gpu=(10, 0)), 0, "model.layers.0.mlp")
    assert block.experts.routed_experts.quant_method.experts_cls is cutlass_moe.FlashInferExperts


@pytest.mark.parametrize("tokens", [1, 17])
def test_the_compiler_sees_one_operator(calls: Calls, tokens: int) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: with a schema and a fake that agree with what it does."""
    arguments = operands(tokens, torch.tensor([[0, 1]] * tokens, dtype=torch.int32), torch.full((tokens, 2), 0.5))
    torch.library.opcheck(torch.ops.vllm.flashinfer_mxfp4_moe_decode.default, arguments)
    assert ("decode", min(tokens, 16)) in calls


def operands(tokens: int, ids: torch.Tensor | None, shares: torch.Tensor | None) -> tuple[Any, ...]:
    """What the operator takes, of a small layer."""
    experts, hidden, intermediate = 4, 64, 32
    scales = [torch.full((experts, 512), 120, dtype=torch.uint8) for _ in range(2)]
    return (
        torch.empty(tokens, hidden).bfloat16(),
        some_inputs(tokens)[:, :hidden].contiguous(),
        torch.full((experts, 2 * intermediate, hidden // 2), 0x21, dtype=torch.uint8),
        scales[0],
        torch.full((experts, hidden, intermediate // 2), 0x21, dtype=torch.uint8),
        scales[1],
        ids,
        shares,
        torch.zeros(experts, 2 * intermediate).bfloat16(),
        None,
        intermediate,
        1.702,
        1.0,
        7.0,
        None,
    )


# The decode kernels alone

ALONE_SWITCH = ["--moe-backend", "flashinfer_decode"]


@pytest.mark.parametrize("capability", [(8, 0), (12, 1)])
def test_the_decode_kernels_run_alone_by_name(
    configure: Configure, weights: dict[str, torch.Tensor], calls: Calls, capability: tuple[int, int]
) -> None:
    """offer-the-mxfp4-decode-kernels-alone-by-name.patch: batches of any size, in slices, and no rounding of activations."""
    config = configure(*ALONE_SWITCH, gpu=capability)
    block = first_block(config)
    for tokens in (16, 35):
        check_block(block, config, weights, tokens)
    assert calls == [("decode", 16), ("decode", 16), ("decode", 16), ("decode", 3)]
    assert block.experts.routed_experts.quant_method.mxfp4_backend is Mxfp4MoeBackend.FLASHINFER_DECODE_MXFP4_BF16


@pytest.mark.parametrize(("hidden", "intermediate", "expected"), [(2880, 2880, (2880, 2880)), (2880, 720, (2880, 736))])
def test_nothing_is_rounded_up_for_the_decode_kernels(hidden: int, intermediate: int, expected: tuple[int, int]) -> None:
    """offer-the-mxfp4-decode-kernels-alone-by-name.patch: but to the blocks of a scale, which a quarter of 2880 is not."""
    assert rounded(Mxfp4MoeBackend.FLASHINFER_DECODE_MXFP4_BF16, hidden, intermediate) == expected


def test_other_checkpoints_are_laid_out_for_them() -> None:
    """offer-the-mxfp4-decode-kernels-alone-by-name.patch: where rows are gate, then up, as most have it."""
    generator = torch.Generator().manual_seed(5)
    w13, w2, s13, s2 = (
        torch.randint(100, 140, (2, rows, columns), dtype=torch.uint8, generator=generator)
        for rows, columns in ((2 * 96, 32), (64, 48), (2 * 96, 2), (64, 3))
    )
    made = oracle.convert_weight_to_mxfp4_moe_kernel_format(
        Mxfp4MoeBackend.FLASHINFER_DECODE_MXFP4_BF16, torch.nn.Module(), w13, w2, s13, s2
    )
    assert torch.equal(made[0], w13.roll(96, 1))
    assert torch.equal(made[1], w2)
    for tiles, scales in zip(made[2:4], (s13.roll(96, 1), s2), strict=True):
        assert torch.equal(torch.stack([mxfp4.from_tiles(one, *scales.shape[1:]) for one in tiles]), scales)


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize(
    ("capability", "value", "reason"),
    [((7, 5), "auto", "current device"), ((9, 0), "prefill", "VLLM_MXFP4_MOE_DECODE=prefill leaves it nothing to run")],
)
def test_the_decode_kernels_alone_are_refused_with_the_reason(
    configure: Configure, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], value: str, reason: str
) -> None:
    """offer-the-mxfp4-decode-kernels-alone-by-name.patch: what was asked for by name is not replaced in silence."""
    monkeypatch.setenv("VLLM_MXFP4_MOE_DECODE", value)
    config = configure(*ALONE_SWITCH, gpu=capability)
    with pytest.raises(ValueError, match=f"FLASHINFER_DECODE_MXFP4_BF16.*{reason}"):
        make_experts(config)


@pytest.mark.parametrize(
    ("compiled", "tools", "expected"),
    [
        (False, ["nvcc", "ninja"], True),
        (True, [], True),
        (False, ["ninja"], False),
        (False, ["nvcc"], False),
    ],
)
def test_the_decode_kernels_are_there_where_they_can_be_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: bool, tools: list[str], expected: bool
) -> None:
    """run-few-tokens-of-mxfp4-experts-by-decode-kernels.patch: compiled, or with what FlashInfer's JIT needs."""
    if compiled:
        (tmp_path / "mxfp4_moe_decode").mkdir()
        (tmp_path / "mxfp4_moe_decode/mxfp4_moe_decode.so").touch()
    modules = {
        "flashinfer.fused_moe": SimpleNamespace(mxfp4_moe_decode=moe_decode),
        "flashinfer.jit.env": SimpleNamespace(FLASHINFER_AOT_DIRS=(tmp_path,)),
    }
    monkeypatch.setattr(vllm_flashinfer, "has_flashinfer_moe", lambda: True)
    monkeypatch.setattr(vllm_flashinfer, "_get_submodule", modules.get)
    monkeypatch.setattr(vllm_flashinfer, "_flashinfer_nvcc_path", lambda: "nvcc" if "nvcc" in tools else None)
    monkeypatch.setattr(vllm_flashinfer.shutil, "which", lambda name: name if name in tools else None)
    assert vllm_flashinfer.has_flashinfer_mxfp4_moe_decode.__wrapped__() is expected


# The choice of experts


@pytest.fixture(name="choices")
def _choices(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Who chooses experts, and for how many tokens: the decode kernels, or vLLM's kernel for that."""
    choices: Calls = []
    module = importlib.import_module(EXPERTS_MODULE)
    decode, before = module.flashinfer_mxfp4_moe_decode, module.fused_topk

    def decoded(*given: Any, **named: Any) -> torch.Tensor:
        if "routing_logits" in named:
            choices.append(("decode", len(given[0])))
        return decode(*given, **named)

    monkeypatch.setattr(module, "flashinfer_mxfp4_moe_decode", decoded)
    monkeypatch.setattr(module, "fused_topk", recorded(choices, "before", before))
    return choices


@pytest.mark.parametrize(("switch", "capability"), [(CUTLASS, (12, 1)), (ALONE_SWITCH, (9, 0))])
def test_few_tokens_choose_in_the_decode_kernels(
    configure: Configure, weights: dict[str, torch.Tensor], choices: Calls, switch: list[str], capability: tuple[int, int]
) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: as many as the kernels take."""
    config = configure(*switch, gpu=capability)
    block = first_block(config)
    for tokens in (1, 3, 16, 17):
        check_block(block, config, weights, tokens)
    assert choices == [("decode", 1), ("decode", 3), ("decode", 16), ("before", 17)]


@pytest.mark.usefixtures("weights")
def test_who_pads_a_batch_chooses_no_experts(configure: Configure, choices: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: by the mask that vLLM's own kernel gets; the others are as without."""
    block, inputs = first_block(configure(*CUTLASS, gpu=(12, 1))), some_inputs(3)
    logits = torch.randn(3, EXPERTS, generator=torch.Generator().manual_seed(7)).bfloat16()
    whole = apply_by_logits(block, inputs, logits)
    router = importlib.import_module("vllm.model_executor.layers.fused_moe.router.fused_topk_router")
    padding = torch.tensor([False, True, False, True])
    monkeypatch.setattr(router, "is_forward_context_available", lambda: True)
    monkeypatch.setattr(router, "get_forward_context", lambda: SimpleNamespace(is_padding=padding))
    found = apply_by_logits(block, inputs, logits)
    assert choices == [("decode", 3)] * 2
    assert torch.equal(found[::2], whole[::2])
    assert whole[1].any()
    assert not found[1].any()


def apply_by_logits(block: MLPBlock, inputs: torch.Tensor, logits: torch.Tensor, **given: Any) -> torch.Tensor:
    """What a layer's experts make of inputs with these logits."""
    layer = block.experts.routed_experts
    common = {"expert_map": None, "a1q_scale": None, "apply_router_weight_on_input": False, "routing_replay_out": None}
    return layer.quant_method.moe_kernel.fused_experts.apply(
        hidden_states=inputs,
        w1=layer.w13_weight,
        w2=layer.w2_weight,
        router_logits=logits,
        activation=layer.activation,
        global_num_experts=EXPERTS,
        **common | given,
    ).double()


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("tokens", [1, 5])
def test_who_asks_for_the_choices_gets_them(configure: Configure, choices: Calls, tokens: int) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: by vLLM's kernel, with the same result."""
    block, inputs = first_block(configure(*CUTLASS, gpu=(12, 1))), some_inputs(tokens)
    logits = torch.randn(tokens, EXPERTS, generator=torch.Generator().manual_seed(7)).bfloat16()
    asked = torch.full((tokens, 2), -1, dtype=torch.int16)
    assert block.experts.routed_experts.quant_method.moe_kernel.fused_experts.supports_routing_replay_capture()
    with_ids = apply_by_logits(block, inputs, logits, routing_replay_out=asked)
    assert choices == [("before", tokens)]
    assert torch.equal(asked.long(), logits.topk(2).indices)
    torch.testing.assert_close(apply_by_logits(block, inputs, logits), with_ids, rtol=0.01, atol=0.01)


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(("tokens", "who"), [(1, "decode"), (16, "decode"), (17, "before")])
def test_experts_that_are_chosen_may_be_elsewhere(configure: Configure, choices: Calls, tokens: int, who: str) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: what is here adds up to the whole; logits may lie apart."""
    block, inputs = first_block(configure(*ALONE_SWITCH, gpu=(9, 0))), some_inputs(tokens)
    logits = torch.randn(EXPERTS, tokens, generator=torch.Generator().manual_seed(7)).bfloat16().T
    parts = [torch.tensor(places, dtype=torch.int32) for places in ([0, -1, 2, -1], [-1, 1, -1, 3])]
    found = [apply_by_logits(block, inputs, logits, expert_map=one) for one in parts]
    assert all(one.any() for one in found)
    whole = apply_by_logits(block, inputs, logits)
    torch.testing.assert_close(sum(found), whole, rtol=0.01, atol=0.01 * whole.abs().max().item())
    assert choices == [(who, tokens)] * 3


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize("asked", [{"num_expert_group": 2}, {"e_score_correction_bias": torch.zeros(EXPERTS)}])
def test_what_only_a_router_can_choose_is_refused(configure: Configure, asked: dict[str, Any]) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: groups have no name of their own, and are not left out in silence."""
    block = first_block(configure(*CUTLASS, gpu=(12, 1)))
    with pytest.raises(NotImplementedError, match="groups of experts"):
        apply_by_logits(block, some_inputs(1), torch.zeros(1, EXPERTS).bfloat16(), **asked)


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize("tokens", [0, 1, 3])
def test_a_weighted_input_has_one_choice(configure: Configure, tokens: int) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: for more of them it is refused; no tokens are none."""
    block = first_block(configure(*CUTLASS, gpu=(12, 1)))
    logits = torch.zeros(tokens, EXPERTS).bfloat16()
    assert apply_by_logits(block, some_inputs(tokens), logits).shape == (tokens, HIDDEN)
    with pytest.raises(AssertionError):
        apply_by_logits(block, some_inputs(tokens), logits, apply_router_weight_on_input=True)


@pytest.mark.usefixtures("weights", "calls")
@pytest.mark.parametrize(
    ("change", "parallel", "chooses"),
    [
        ({}, {}, True),
        ({"routing_method": RoutingMethodType.Renormalize}, {}, True),
        ({"routing_method": RoutingMethodType.Default}, {}, False),
        ({"routing_method": RoutingMethodType.Simulated}, {}, False),
        ({"router_logits_dtype": torch.float32}, {}, False),
        ({}, {"enable_eplb": True}, False),
        ({}, {"dp_size": 2}, False),
        ({}, {"dp_size": 2, "use_ep": True, "all2all_backend": "deepep_high_throughput"}, False),
    ],
)
def test_who_chooses_otherwise_gets_the_experts_that_take_ids(
    configure: Configure, change: dict[str, Any], parallel: dict[str, Any], chooses: bool
) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: the same kernels, as before."""
    moe = MLPBlock(configure(*CUTLASS, gpu=(12, 1)), 0, "model.layers.0.mlp").experts.routed_experts.moe_config
    asked = replace(moe, moe_parallel_config=replace(moe.moe_parallel_config, **parallel), **change)
    name = oracle.select_mxfp4_moe_backend(asked)[1].__name__
    assert name == ("FlashInferMxfp4DecodeExpertsMonolithic" if chooses else "FlashInferMxfp4DecodeExperts")


@pytest.mark.usefixtures("weights", "calls")
def test_who_chooses_is_said(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: once."""
    lines: list[str] = []
    logger = importlib.import_module(EXPERTS_MODULE).logger
    monkeypatch.setattr(logger, "info_once", lambda message, *values, **_: lines.append(message % values))
    first_block(configure(*CUTLASS, gpu=(12, 1)))
    assert [line for line in lines if "choice" in line] == [CHOICE_SAID]


CHOICE_SAID = "Using 'flashinfer_mxfp4_moe_decode' for the choice of MXFP4 experts of up to 16 tokens."


@pytest.mark.parametrize("tokens", [1, 17])
def test_the_compiler_sees_the_choice_in_the_operator(calls: Calls, tokens: int) -> None:
    """let-few-tokens-choose-experts-in-the-decode-kernels.patch: with the same schema for ids and for logits."""
    arguments = (*operands(tokens, None, None), torch.tensor([[1, 2, 0, -1]] * tokens).bfloat16(), 2)
    torch.library.opcheck(torch.ops.vllm.flashinfer_mxfp4_moe_decode.default, arguments)
    assert ("decode", min(tokens, 16)) in calls


# The router

GATE_MODULE = "vllm.model_executor.layers.fused_moe.router.tinygemm_router"
SAID = "Using 'flashinfer_tinygemm_bf16' for the MoE router of up to 16 tokens."
FROM_SM90 = [(9, 0), (10, 0), (11, 0), (12, 0), (12, 1)]


@pytest.fixture(name="gemms")
def _gemms(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A FlashInfer that has the small GEMM, and a user who asks for it; with how many tokens it runs."""
    gemms: Calls = []
    monkeypatch.setenv("VLLM_USE_FLASHINFER_ROUTER_GEMM", "1")
    module = importlib.import_module(GATE_MODULE)
    monkeypatch.setattr(module, "has_flashinfer_tinygemm", lambda: True)
    monkeypatch.setattr(module, "flashinfer_tinygemm_bf16", recorded(gemms, "tinygemm", tinygemm))
    return gemms


@pytest.fixture(name="said")
def _said(gemms: Calls, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the log says of the gate, once or as often as there are gates."""
    said: list[str] = []
    logger = importlib.import_module(GATE_MODULE).logger
    monkeypatch.setattr(logger, "info_once", lambda message, *values, **_: said.append(message % values))
    return said


def filled(gate: GateLinear) -> GateLinear:
    """The gate, with random weights."""
    generator = torch.Generator().manual_seed(11)
    for one in gate.parameters():
        one.data.copy_(torch.randn(one.shape, generator=generator))
    return gate


def make_gate(inputs: int = HIDDEN, outputs: int = 16, *, dtype: torch.dtype = torch.bfloat16, **given: Any) -> GateLinear:
    """A gate in a model of this type, made as gpt-oss makes its router."""
    with set_default_torch_dtype(dtype):
        return filled(GateLinear(inputs, outputs, **{"bias": True, "return_bias": False} | given))


def gate_inputs(gate: GateLinear, tokens: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(tokens, gate.input_size, generator=generator).to(gate.weight.dtype)


def logits_by_the_book(gate: GateLinear, inputs: torch.Tensor) -> torch.Tensor:
    bias = 0 if gate.bias is None or gate.skip_bias_add else gate.bias.double()
    return inputs.double() @ gate.weight.double().T + bias


def check_gate(gate: GateLinear, tokens: int) -> None:
    """It gives what its weights say, up to rounding."""
    inputs = gate_inputs(gate, tokens)
    logits = gate(inputs)
    assert logits.dtype is (gate.out_dtype or inputs.dtype)
    assert logits.is_contiguous()
    torch.testing.assert_close(logits.double(), logits_by_the_book(gate, inputs), rtol=0.01, atol=0.05)


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("capability", FROM_SM90)
@pytest.mark.parametrize("given", [{}, {"out_dtype": torch.bfloat16}])
def test_few_tokens_of_a_gate_run_the_small_gemm(
    configure: Configure, gemms: Calls, capability: tuple[int, int], given: dict[str, Any]
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: up to 16 and not none; more are cuBLAS's."""
    configure(gpu=capability)
    gate = make_gate(**given)
    for tokens in (0, 1, 16, 17):
        check_gate(gate, tokens)
    assert gemms == [("tinygemm", 1), ("tinygemm", 16)]
    inputs = gate_inputs(gate, 17)
    assert torch.equal(gate(inputs), torch.nn.functional.linear(inputs, gate.weight, gate.bias))


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(
    ("capability", "setting", "runs"),
    [
        ((9, 0), None, True),
        ((9, 0), "0", False),
        *[(capability, None, False) for capability in FROM_SM90[1:]],
        *[(capability, "1", True) for capability in FROM_SM90[1:]],
        ((8, 9), "1", False),
    ],
)
def test_where_it_has_not_run_the_small_gemm_is_opt_in(
    configure: Configure,
    gemms: Calls,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    setting: str | None,
    runs: bool,
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: it was measured on SM90, and is the default there."""
    if setting is None:
        monkeypatch.delenv("VLLM_USE_FLASHINFER_ROUTER_GEMM")
    else:
        monkeypatch.setenv("VLLM_USE_FLASHINFER_ROUTER_GEMM", setting)
    configure(gpu=capability)
    check_gate(make_gate(), 3)
    assert (gemms, said) == (([("tinygemm", 3)], [SAID]) if runs else ([], []))


def test_the_router_of_gpt_oss_runs_it(tmp_path: Path, configure: Configure, gemms: Calls) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: as its own layer makes it and calls it."""
    write_checkpoint(tmp_path / "model", 128, hidden=HIDDEN, intermediate=INTERMEDIATE, num_local_experts=32)
    config = configure(gpu=(12, 1))
    with set_default_torch_dtype(torch.bfloat16):
        router = filled(MLPBlock(config, 0, "model.layers.0.mlp").router)
    assert router.weight.shape == (32, HIDDEN)
    check_gate(router, 3)
    assert gemms == [("tinygemm", 3)]


@pytest.mark.usefixtures("weights")
def test_what_else_a_gate_may_give_stays(configure: Configure, gemms: Calls) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: a pair where it is asked for; inputs of any layout."""
    configure(gpu=(12, 1))
    gate = make_gate(return_bias=True, out_dtype=torch.bfloat16)
    wide = torch.randn(3, 2 * HIDDEN).bfloat16()
    inputs = wide[:, HIDDEN:]
    logits, bias = gate(inputs)
    assert bias is None
    assert gemms == [("tinygemm", 3)]
    torch.testing.assert_close(logits.double(), logits_by_the_book(gate, inputs), rtol=0.01, atol=0.05)
    # What the kernel does not take, the layer has always taken.
    for other in (inputs.float(), inputs[None]):
        torch.testing.assert_close(gate(other)[0].reshape(3, -1), logits, rtol=0.02, atol=0.1)
    assert gemms == [("tinygemm", 3)]


@pytest.mark.usefixtures("weights")
def test_the_small_gemm_is_said(configure: Configure, said: list[str]) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: where it runs, in one line, by what says it once."""
    configure(gpu=(12, 1))
    make_gate()
    assert said == [SAID]


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(
    ("capability", "given"),
    [
        ((8, 0), {}),
        ((8, 9), {}),
        ((12, 1), {"bias": False}),
        ((12, 1), {"skip_bias_add": True}),
        ((12, 1), {"dtype": torch.float16}),
        ((12, 1), {"dtype": torch.float32}),
        ((12, 1), {"params_dtype": torch.float32}),
        ((12, 1), {"out_dtype": torch.float32}),
        ((12, 1), {"inputs": 160}),
        ((12, 1), {"outputs": 20}),
    ],
)
def test_other_gates_run_as_before(
    configure: Configure, gemms: Calls, said: list[str], capability: tuple[int, int], given: dict[str, Any]
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: older GPUs, other types and sizes, no bias to add."""
    configure(gpu=capability)
    check_gate(make_gate(**given), 3)
    assert (gemms, said) == ([], [])


@pytest.mark.usefixtures("weights")
def test_without_the_small_gemm_gates_run_as_before(
    configure: Configure, gemms: Calls, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: where FlashInfer lacks it, or is not there."""
    monkeypatch.setattr(importlib.import_module(GATE_MODULE), "has_flashinfer_tinygemm", lambda: False)
    configure(gpu=(12, 1))
    check_gate(make_gate(), 3)
    assert (gemms, said) == ([], [])


class Quantized(LinearMethodBase):
    """A method that has a plain weight, too, and makes of it what it likes: here what is expected."""

    create_weights = UnquantizedLinearMethod.create_weights

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return torch.nn.functional.linear(x, layer.weight, bias)


@pytest.mark.usefixtures("weights")
def test_a_quantized_gate_runs_as_before(configure: Configure, gemms: Calls, said: list[str]) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: also where it has a weight in BF16."""
    configure(gpu=(12, 1))
    quantizing = SimpleNamespace(online_quantization_config=None, get_quant_method=lambda *_, **__: Quantized())
    check_gate(make_gate(quant_config=quantizing), 3)
    assert (gemms, said) == ([], [])


@pytest.mark.usefixtures("weights")
def test_a_gemm_for_all_layers_runs_the_gate(
    configure: Configure, gemms: Calls, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: what --linear-backend chose is not replaced."""
    configure(gpu=(12, 1))
    chosen: Calls = []

    def linear_of_layer(_: torch.nn.Module, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return recorded(chosen, "chosen", torch.nn.functional.linear)(x, *weights)

    monkeypatch.setattr(linear, "dispatch_unquantized_gemm", lambda _: linear_of_layer)
    check_gate(make_gate(), 3)
    assert (gemms, said, chosen) == ([], [], [("chosen", 3)])


@pytest.mark.usefixtures("weights")
def test_batches_stay_invariant(configure: Configure, gemms: Calls, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: the same kernel for 16 and for 17 tokens."""
    configure(gpu=(12, 1))
    invariant: Calls = []
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setattr(linear, "linear_batch_invariant", recorded(invariant, "invariant", torch.nn.functional.linear))
    gate = make_gate()
    for tokens in (16, 17):
        check_gate(gate, tokens)
    assert (gemms, said, invariant) == ([], [], [("invariant", 16), ("invariant", 17)])


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize(("later", "expected"), [(torch.bfloat16, [("tinygemm", 3)]), (torch.float32, [])])
def test_a_gate_may_get_its_type_later(configure: Configure, gemms: Calls, later: torch.dtype, expected: Calls) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: after it was made, as some models do it."""
    configure(gpu=(12, 1))
    gate = make_gate()
    gate.set_out_dtype(later)
    check_gate(gate, 3)
    assert gemms == expected


@pytest.mark.parametrize(
    ("names", "tools", "expected"),
    [
        (["tinygemm_bf16"], ["nvcc", "ninja"], True),
        (["mm_bf16"], ["nvcc", "ninja"], False),
        (["tinygemm_bf16"], ["ninja"], False),
        (["tinygemm_bf16"], ["nvcc"], False),
        (None, ["nvcc", "ninja"], False),
    ],
)
def test_the_small_gemm_is_there_where_it_can_be_compiled(
    monkeypatch: pytest.MonkeyPatch, names: list[str] | None, tools: list[str], expected: bool
) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: FlashInfer, its function, and what compiles it."""
    stand_in_for_flashinfer(monkeypatch, dict.fromkeys(names or ["tinygemm_bf16"], tinygemm))
    monkeypatch.setattr(vllm_flashinfer, "has_flashinfer", lambda: names is not None)
    monkeypatch.setattr(vllm_flashinfer, "_flashinfer_nvcc_path", lambda: "nvcc" if "nvcc" in tools else None)
    monkeypatch.setattr(vllm_flashinfer.shutil, "which", lambda name: name if name in tools else None)
    assert vllm_flashinfer.has_flashinfer_tinygemm.__wrapped__() is expected


def stand_in_for_flashinfer(monkeypatch: pytest.MonkeyPatch, functions: dict[str, Any]) -> None:
    """A package flashinfer whose module gemm has these."""
    modules = {name: ModuleType(name) for name in ("flashinfer", "flashinfer.gemm")}
    vars(modules["flashinfer.gemm"]).update(functions)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_flashinfer_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: through vLLM's own wrapper."""
    called: Calls = []
    stand_in_for_flashinfer(monkeypatch, {"tinygemm_bf16": recorded(called, "tinygemm", tinygemm)})
    monkeypatch.setattr(vllm_flashinfer, "has_flashinfer", lambda: True)
    monkeypatch.setattr(importlib.import_module(GATE_MODULE), "has_flashinfer_tinygemm", lambda: True)
    inputs, weight, bias = torch.ones(2, 64).bfloat16(), torch.ones(16, 64).bfloat16(), torch.ones(16).bfloat16()
    assert torch.equal(torch.ops.vllm.tinygemm_router(inputs, weight, bias), torch.full((2, 16), 65).bfloat16())
    assert called == [("tinygemm", 2)]


def test_a_graph_of_a_machine_that_has_the_small_gemm_runs_without_it(gemms: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: a compiled graph may come from a cache."""
    monkeypatch.setattr(importlib.import_module(GATE_MODULE), "has_flashinfer_tinygemm", lambda: False)
    inputs, weight, bias = torch.ones(2, 64).bfloat16(), torch.ones(16, 64).bfloat16(), torch.ones(16).bfloat16()
    assert torch.equal(torch.ops.vllm.tinygemm_router(inputs, weight, bias), torch.full((2, 16), 65).bfloat16())
    assert gemms == []


@pytest.mark.parametrize("tokens", [0, 1, 16, 17])
def test_the_compiler_sees_one_operator_of_the_gate(gemms: Calls, tokens: int) -> None:
    """run-the-router-of-few-tokens-by-flashinfer-s-small-gemm.patch: with a schema and a fake that agree with what it does."""
    arguments = (torch.randn(tokens, 64).bfloat16(), torch.randn(16, 64).bfloat16(), torch.randn(16).bfloat16())
    torch.library.opcheck(torch.ops.vllm.tinygemm_router.default, arguments)
    assert set(gemms) == ({("tinygemm", tokens)} if 0 < tokens <= 16 else set())
