# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MXFP4 decode kernels on a CPU: right as they are carried, and with one fault each refused by a case or the machine.

VALIDATION_FLASHINFER names a source tree of FlashInfer in place of the carried one, for work on the kernels.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from stack.carry.bases import Place, Stores
from stack.model.stack import load
from stack.store import cache as places
from validation.kernels import carried_kernels
from validation.numerics.blocks import Rounding
from validation.numerics.cases import BFLOAT16_BAR
from validation.numerics.emulated import KernelFault, Machine, building
from validation.numerics.experts import Experts, swiglu
from validation.numerics.formats import bfloat16
from validation.numerics.judging import judge, measure
from validation.numerics.kernels.emulated import both, decoded, every_number, multiplied, quantized, reference, tiled
from validation.numerics.linear import Linear

ROOT = Path(__file__).parents[3]
MOE, GEMV, QUANTIZE, STREAM = "moe_decode.cuh", "gemv.cuh", "quantize.cuh", "weight_stream.cuh"
EXPERTS = Experts(4, experts=4, hidden=96, intermediate=160, elsewhere=1)
WIDE = (128, 288)
CROWDED = Experts(16, experts=4, hidden=96, intermediate=96, twice=True)
DEEP = (Experts(2, experts=4, hidden=2880, intermediate=32), Experts(2, experts=4, hidden=32, intermediate=2880))
LAYER = Linear(9, 5152, 56, "mxfp4")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    named = os.environ.get("VALIDATION_FLASHINFER")
    if named:
        return building.headers(Path(named))
    with Stores(load(ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


def built(kernels: dict[str, bytes]) -> Machine:
    plan = building.plan(kernels)
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return Machine.load(plan.build(place))


def mutated(kernels: dict[str, bytes], name: str, was: str, becomes: str) -> Machine:
    """The kernels that need the file `name`, with other text in one of theirs, wherever it stands."""
    beside = {MOE: {GEMV, QUANTIZE}, GEMV: {MOE, QUANTIZE}, QUANTIZE: {MOE, GEMV}, STREAM: {QUANTIZE}}[name]
    text = kernels[name].decode()
    assert was in text, f"{name} has no {was}"
    changed = {**kernels, name: text.replace(was, becomes).encode()}
    return built({one: data for one, data in changed.items() if one not in beside})


def refused(run: Callable[[], object]) -> str:
    """What is said of a kernel with a fault; nothing where it passes."""
    try:
        return str(run())
    except (KernelFault, RuntimeError) as fault:
        return str(fault)


def experts_judged(machine: Machine) -> str:
    few = judge(decoded(machine, EXPERTS, WIDE), EXPERTS.truth(), BFLOAT16_BAR).why
    return few or as_stored(machine, CROWDED)


def columns_judged(machine: Machine) -> str:
    """Experts with more columns than are under way at a time."""
    return as_stored(machine, DEEP[0]) or as_stored(machine, DEEP[1])


def as_stored(machine: Machine, layer: Experts) -> str:
    return judge(decoded(machine, layer, (layer.hidden, layer.intermediate)), layer.truth(), BFLOAT16_BAR).why


def layer_judged(machine: Machine) -> str:
    return judge(multiplied(machine, LAYER), LAYER.truth(), BFLOAT16_BAR).why


@cache
def numbers_and_codes(rounding: Rounding) -> tuple[np.ndarray, np.ndarray]:
    bits = every_number()
    return bits, both(reference(bits, rounding))


def quantizer_judged(machine: Machine) -> str:
    return codes_judged(machine, Rounding.FLOOR) or codes_judged(machine, Rounding.EVEN)


def codes_judged(machine: Machine, rounding: Rounding) -> str:
    bits, codes = numbers_and_codes(rounding)
    differing = np.count_nonzero(both(quantized(machine, bits, rounding)) != codes)
    return f"{differing} differ" if differing else ""


FAR = "as far from the reference as allowed"
FAULTS = [
    ("nibbles in another order", STREAM, "kPair ? 0x00F000F0u : 0x000F000Fu", "kPair ? 0x000F000Fu : 0x00F000F0u", FAR),
    ("tokens in another order", STREAM, "permute_bytes(low, high, 0x5410u)", "permute_bytes(high, low, 0x5410u)", FAR),
    ("rows of scale tiles swapped", STREAM, "row % 32 * 16 + row % 128 / 32 * 4", "row % 32 * 4 + row % 128 / 32 * 128", FAR),
    ("scales of another tile", STREAM, "divide_up(stored_blocks, kStageBlocks);", "(stored_blocks / kStageBlocks);", FAR),
    ("scales of a row from its first word", STREAM, "0x3210u + 0x1111u * ", "0x3210u + 0u * ", FAR),
    ("all scales of a stage are its first", STREAM, "0x4440u + block", "0x4440u", FAR),
    ("lanes load another matrix", STREAM, "(lane / 8 ^ lane % 8 / 2)", "(lane / 8 ^ lane % 8 / 2 ^ 1)", FAR),
    ("blocks beyond the columns", STREAM, "stage * kStageBlocks + lane_ % 4 < blocks_", "true", "outside of every buffer"),
    ("nobody waits for copies", STREAM, "copy_wait<kStages - 2>();", "", "a copy is on its way there"),
    ("copies are waited for too late", STREAM, "copy_wait<kStages - 2>();", "copy_wait<kStages - 1>();", "a copy is on its way there"),
    ("lanes do not meet", STREAM, "sync_warp();", "", "a copy is on its way there|no barrier between|nobody has written it"),
    ("a slot is filled too early", STREAM, "fetch(slot == 0 ? kStages - 1 : slot - 1);", "fetch(slot);", "a copy is on its way there"),
    ("gate and up swapped", MOE, "swiglu(moe, up, gate)", "swiglu(moe, gate, up)", FAR),
    ("up not limited below", MOE, "up < -moe.limit ? -moe.limit : up", "up", FAR),
    ("gate not limited", MOE, "gate > moe.limit ? moe.limit : gate", "gate", FAR),
    ("another alpha", MOE, "-moe.alpha * gate", "-gate", FAR),
    ("bias of another expert", MOE, "moe.up_bias + expert * 2", "moe.up_bias + 0 * expert * 2", FAR),
    ("second bias missing", MOE, "if (moe.down_bias != nullptr)", "if (false)", FAR),
    ("weights of the router missing", MOE, "moe.router_weights[entry] * product", "product", FAR),
    ("groups take one token too few", MOE, "&& members < most", "&& members < most - 1", FAR + "|not written|nobody has written it"),
    ("a map is not followed", MOE, "moe.expert_map[expert] : kNobody", "expert : kNobody", FAR),
    ("warps do not meet before they add", MOE, "TiledScales{moe.stored_hidden / kBlockColumns}, work, lane);\n  sync_block();",
     "TiledScales{moe.stored_hidden / kBlockColumns}, work, lane);", "no barrier between|nobody has written it"),
    ("the second launch does not wait", MOE, "void wait() const { wait_for_predecessor(); }", "void wait() const {}", "it was not waited for"),
    ("rows beyond the intermediate", MOE, "row >= moe.intermediate ? kNobody", "row >= moe.stored_intermediate ? kNobody",
     "outside of every buffer|another block of this launch uses it|not to be|nobody"),
    ("three launches", MOE, "int const slices = down_slices(moe);",
     "(void)launch(mxfp4_moe_up_kernel<kTokenTiles>, up, kUpWarps * kWarp, up_shared_bytes<kTokenTiles>(), stream, early, moe);\n"
     "  int const slices = down_slices(moe);", "3 launches, 2 are allowed"),
    ("rows beyond the weight", GEMV, "first + place < gemv.rows ? first + place : -1", "first + place", "outside of every buffer"),
    ("bias missing", GEMV, "if (gemv.bias != nullptr)", "if (false)", FAR),
    ("the last warp's part missing", GEMV, "other < kWarps; ++other", "other < kWarps - 1; ++other", FAR),
    ("one token too many", GEMV, "place < gemv.tokens ? place : 0", "place", "outside of every buffer"),
    *((f"tie at {number} / 2048", QUANTIZE, f"eighths {was} {number}u", f"eighths {becomes} {number}u", "differ")
      for number, was, becomes in ((512, ">", ">="), (1536, ">=", ">"), (2560, ">", ">="), (3584, ">=", ">"),
                                   (5120, ">", ">="), (7168, ">=", ">"), (10240, ">", ">="))),
    ("half of a scale's last bit", QUANTIZE, "kHalf = 0x20u", "kHalf = 0x40u", "differ"),
    ("scale of infinities", QUANTIZE, "return 254u;", "return 255u;", "differ"),
    ("scale of NaN", QUANTIZE, "if (largest > kBf16Infinity) return kScaleNan;", "", "differ"),
    ("subnormal numbers", QUANTIZE, "(field ? 0x80u : 0u)", "0x80u", "differ"),
    ("the sign of zero", QUANTIZE, "if (shift > 11) return sign;", "if (shift > 11) return 0;", "differ"),
]  # fmt: skip
JUDGES = {
    MOE: (experts_judged,),
    GEMV: (layer_judged,),
    QUANTIZE: (quantizer_judged,),
    STREAM: (experts_judged, columns_judged, layer_judged),
}


def test_the_kernels_are_right_as_they_are_carried(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    assert [judged(machine) for judged in (*JUDGES[STREAM], quantizer_judged)] == ["", "", "", ""]


@pytest.mark.parametrize(("name", "was", "becomes", "says"), [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_a_fault_in_their_text_is_refused(kernels: dict[str, bytes], name: str, was: str, becomes: str, says: str) -> None:
    machine = mutated(kernels, name, was, becomes)
    said = [refused(lambda judged=judged: judged(machine)) for judged in JUDGES[name]]  # type: ignore[misc]
    assert any(any(one in text for one in says.split("|")) for text in said), said


def ideal(layer: Experts) -> np.ndarray:
    """The output of a kernel that rounds to bfloat16 what is between the multiplications, and the output, and nothing else."""
    output = np.zeros((layer.tokens, layer.hidden))
    for one in layer.routed():
        expert = layer.expert(one.expert)
        gate_up = layer.inputs[one.rows].astype(np.float64) @ expert.gate_up.values().T + expert.gate_up_bias
        hidden = bfloat16(swiglu(gate_up)).astype(np.float64)
        output[one.rows] += one.weights[:, None] * (hidden @ expert.down.values().T + expert.down_bias)
    return bfloat16(output)


@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_nothing_is_rounded_but_what_has_to_be(kernels: dict[str, bytes], tokens: int) -> None:
    machine = built(kernels)
    layer = Experts(tokens, experts=8, hidden=192, intermediate=352)
    truth = layer.truth()
    found = measure(decoded(machine, layer, (192, 352)), truth)
    assert found.overall <= 1.05 * measure(ideal(layer), truth).overall
    dense = Linear(tokens, 1184, 56, "mxfp4")
    truth = dense.truth()
    assert measure(multiplied(machine, dense), truth).overall <= 1.05 * measure(bfloat16(truth.reference), truth).overall


def test_a_number_that_is_none_spoils_its_own_token_and_no_other(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    good = decoded(machine, replace(CROWDED), (96, 96))
    spoiled = replace(CROWDED)
    spoiled.inputs[5, 7] = np.nan
    found = decoded(machine, spoiled, (96, 96))
    assert np.isnan(found[5]).all()
    assert np.array_equal(np.delete(found, 5, axis=0), np.delete(good, 5, axis=0))
    layer = replace(LAYER)
    layer.x[2, 9] = np.nan
    found, good = multiplied(machine, layer), multiplied(machine, LAYER)
    assert np.isnan(found[2]).all()
    assert np.array_equal(np.delete(found, 2, axis=0), np.delete(good, 2, axis=0))


def test_what_no_expert_here_has_is_zero(kernels: dict[str, bytes]) -> None:
    layers = (Experts(1, experts=4, hidden=96, intermediate=96, top=1, elsewhere=3, seed=seed) for seed in range(100))
    far = next(layer for layer in layers if (layer.route[0] < layer.elsewhere).all())
    assert not decoded(built(kernels), far, (96, 96)).any()


def test_what_a_case_says_of_its_experts_is_so() -> None:
    assert CROWDED.route[0].shape == (16, 4)
    assert np.array_equal(CROWDED.route[0][:, 0], CROWDED.route[0][:, 1])
    most = max(np.count_nonzero(CROWDED.route[0] == expert) for expert in range(4))
    assert most > 16  # more than are multiplied together
    assert (EXPERTS.route[0] < EXPERTS.elsewhere).any()
    few = replace(EXPERTS, experts=64)
    assert len({one.expert for one in few.routed()}) < 63


def test_scales_are_tiled_as_their_definition_says() -> None:
    scales = np.random.default_rng(0).integers(0, 256, (160, 6), dtype=np.uint8)
    found = tiled(scales)
    assert found.size == 256 * 8
    for row in range(160):
        for block in range(6):
            place = (row // 128 * 2 + block // 4) * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
            assert found[place] == scales[row, block]
