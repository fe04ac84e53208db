# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-decode in FlashInfer: the kernels for few tokens.

Their own sources run on this machine's CPU, thread by thread, by a machine that is stricter than a GPU
(`kernels/laboratory/emulated`). What they compute is held against float64 beside what wrong kernels compute.
"""

import importlib
import os

import on_cpu
import pytest
import support

from laboratory import mxfp4
from laboratory.emulated import Machine
from stack.validation.numerics.experts import Experts
from stack.validation.numerics.judging import judge

with support.quiet():
    from flashinfer.jit import env as jit_env

ONE_TOKEN = "flashinfer/add-an-experimental-mxfp4-moe-for-one-token.patch"
SHARED = "flashinfer/let-tokens-of-an-mxfp4-moe-share-their-experts.patch"
LOGITS = "flashinfer/let-an-mxfp4-moe-choose-experts-by-logits.patch"
PARTS = "flashinfer/take-tokens-of-an-mxfp4-moe-in-parts.patch"

# Most of what the patches bring needs a GPU, and is skipped here.
PROVES = {
    ONE_TOKEN: [
        "test_a_token_goes_through_its_experts",
        "test_the_module_has_its_source",
        "tests/experimental/test_mxfp4_moe_decode.py::test_only_few_choices_are_taken",
        "tests/experimental/test_mxfp4_moe_decode.py::test_older_devices_are_refused",
        "tests/experimental/test_mxfp4_moe_decode.py::test_the_api_is_marked",
    ],
    SHARED: [
        "test_tokens_go_through_their_experts",
        "tests/experimental/test_mxfp4_moe_decode.py::test_only_few_tokens_are_taken",
    ],
    LOGITS: [
        "test_tokens_choose_their_experts",
        "tests/experimental/test_mxfp4_moe_decode.py::test_experts_are_given_or_chosen",
        "tests/experimental/test_mxfp4_moe_decode.py::test_padding_is_for_those_who_choose",
    ],
    PARTS: ["test_tokens_without_room_are_taken_in_parts"],
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(name="machine", scope="module")
def _machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The kernels of this tree, for this machine's CPU."""
    return on_cpu.machine(tmp_path_factory.mktemp("emulated"))


def why_wrong(machine: Machine, layer: Experts, *, chooses: bool = False) -> str:
    """Say why what the kernels compute is too far from the reference; empty if it is not."""
    return judge(mxfp4.decoded(machine, layer, (192, 128), chooses=chooses), layer.truth(), on_cpu.BAR).why


def test_a_token_goes_through_its_experts(machine: Machine) -> None:
    # Weights are wider than the layer: what is stored beyond it is large, and nobody may read it.
    assert not why_wrong(machine, Experts(1, experts=6, hidden=160, intermediate=96))


@pytest.mark.parametrize("tokens", [4, 9])
def test_tokens_go_through_their_experts(tokens: int, machine: Machine) -> None:
    assert not why_wrong(machine, Experts(tokens, experts=6, hidden=160, intermediate=96))


@pytest.mark.parametrize("tokens", [1, 4])
def test_tokens_choose_their_experts(tokens: int, machine: Machine) -> None:
    assert not why_wrong(machine, Experts(tokens, experts=6, hidden=160, intermediate=96), chooses=True)


def test_tokens_without_room_are_taken_in_parts(machine: Machine) -> None:
    # Of 1024 columns nine tokens have no room in so few bytes; the second launch, which has no tokens there, does.
    layer = Experts(9, experts=6, hidden=1024, intermediate=64)
    made = mxfp4.decoded(machine, layer, (1024, 64), shared_limit=46_000)
    assert not judge(made, layer.truth(), on_cpu.BAR).why


def test_the_module_has_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    # Building a wheel copies this folder into the package; a source tree has it beside the package.
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", on_cpu.TREE / "csrc")
    spec = importlib.import_module("flashinfer.experimental.mxfp4_decode.moe").gen_mxfp4_moe_decode_module()
    assert [source.exists() for source in spec.sources] == [True]
    flags = " ".join(spec.extra_cuda_cflags)
    assert f"sm_{os.environ['FLASHINFER_CUDA_ARCH_LIST'].replace('.', '')}" in flags
