# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-moe in FlashInfer: the kernels for few tokens.

Their own sources run on this machine's CPU, thread by thread, by a machine that is stricter than a GPU
(`kernels/laboratory/emulated`). What they compute is held against float64 beside what wrong kernels compute.
"""

import importlib
import os

import on_cpu
import pytest
import support
import torch

from laboratory import mxfp4
from laboratory.emulated import Machine
from stack.validation.numerics.experts import Experts
from stack.validation.numerics.judging import judge

with support.quiet():
    from flashinfer import fused_moe
    from flashinfer.jit import env as jit_env

KERNELS = "flashinfer/add-an-mxfp4-moe-for-few-tokens.patch"

PROVES = {
    KERNELS: [
        "test_tokens_go_through_their_experts",
        "test_more_tokens_than_it_takes_are_refused",
        "test_tokens_choose_their_experts",
        "test_experts_are_given_or_chosen",
        "test_the_module_has_its_source",
    ],
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(name="machine", scope="module")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The kernels of this tree, for this machine's CPU."""
    return on_cpu.machine(tmp_path_factory.mktemp("emulated"))


@pytest.mark.parametrize("tokens", [1, 4, 9])
def test_tokens_go_through_their_experts(tokens: int, machine: Machine) -> None:
    # Weights are wider than the layer: what is stored beyond it is large, and nobody may read it.
    layer = Experts(tokens, experts=6, hidden=160, intermediate=96)
    judgement = judge(mxfp4.decoded(machine, layer, (192, 128)), layer.truth(), on_cpu.BAR)
    assert not judgement.why


def test_more_tokens_than_it_takes_are_refused() -> None:
    nothing = [torch.empty(0)] * 4
    with pytest.raises(ValueError, match="1 to 16 tokens, not 17"):
        fused_moe.mxfp4_moe_decode(torch.empty(17, 32), *nothing, torch.empty(17, 4), torch.empty(17, 4))
    with pytest.raises(ValueError, match="1 to 8 choices, not 9"):
        fused_moe.mxfp4_moe_decode(torch.empty(16, 32), *nothing, torch.empty(16, 9), torch.empty(16, 9))


@pytest.mark.parametrize("tokens", [1, 4])
def test_tokens_choose_their_experts(tokens: int, machine: Machine) -> None:
    layer = Experts(tokens, experts=6, hidden=160, intermediate=96)
    judgement = judge(mxfp4.decoded(machine, layer, (192, 128), chooses=True), layer.truth(), on_cpu.BAR)
    assert not judgement.why


NEITHER = [
    [],
    ["topk_ids"],
    ["topk_ids", "routing_logits"],
    ["routing_logits"],
    ["topk_ids", "topk_weights", "top_k"],
    ["topk_weights", "routing_logits", "top_k"],
]


@pytest.mark.parametrize("given", NEITHER)
def test_experts_are_given_or_chosen(given: list[str]) -> None:
    named = {name: torch.empty(1, 4) if name != "top_k" else 4 for name in given}
    with pytest.raises(ValueError, match="topk_ids and topk_weights, or routing_logits and top_k"):
        fused_moe.mxfp4_moe_decode(torch.empty(1, 32), *[torch.empty(0)] * 4, **named)


def test_the_module_has_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    # Building a wheel copies this folder into the package; a source tree has it beside the package.
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", on_cpu.TREE / "csrc")
    spec = importlib.import_module("flashinfer.jit.mxfp4_decode").gen_mxfp4_moe_decode_module()
    assert [source.exists() for source in spec.sources] == [True]
    flags = " ".join(spec.extra_cuda_cflags)
    assert f"sm_{os.environ['FLASHINFER_CUDA_ARCH_LIST'].replace('.', '')}" in flags
