# SPDX-License-Identifier: Apache-2.0
"""Products of bytes: right on the emulated machine as they are, and with a fault refused by a case or by the machine."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decode_prototype
from stack.carry.bases import Place, Stores
from stack.model.errors import StackError
from stack.model.stack import load
from stack.proof.compiling import toolkit
from stack.store import cache as places
from tests.validation.numerics import test_decode_kernels as carried
from validation.kernels import carried_kernels
from validation.numerics.cases import BFLOAT16_BAR
from validation.numerics.emulated import KernelFault, Machine, building
from validation.numerics.experts import Experts
from validation.numerics.formats import bfloat16
from validation.numerics.judging import judge, measure
from validation.numerics.kernels import emulated
from validation.numerics.kernels.emulated import decoded, multiplied
from validation.numerics.linear import Linear

ROOT = Path(__file__).parents[2]
LAUNCHERS = Path(__file__).with_name("prototype.cpp")
PRODUCTS, EXPERTS, GEMV = "byte_products.cuh", "byte_experts.cuh", "byte_gemv.cuh"
SHAPES = (
    (Linear(4, 5152, 56, "mxfp4"), 48),  # 16 rows a block
    (Linear(3, 1312, 244, "mxfp4"), 4),  # 32
    (Linear(1, 160, 56, "mxfp4"), 48),  # columns for two warps only
    (Linear(2, 512, 1100, "mxfp4"), 1),  # wide, as many stages as a ring has
    (Linear(2, 384, 1100, "mxfp4"), 1),  # too few for it
    (Linear(4, 1312, 1061, "mxfp4"), 1),
    (Linear(4, 2880, 320, "mxfp4"), 4),  # no room for 32 rows
)
"""Layers, and multiprocessors."""
MANY = Experts(14, experts=3, hidden=2880, intermediate=32, top=2)
LONG = Experts(2, experts=3, hidden=32, intermediate=5664, top=1)
"""So long that there are fewer warps, which do not share evenly what there is for each."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    with Stores(load(ROOT), Place(places.root())) as stores:
        return decode_prototype.headers(carried_kernels(stores))


def built(kernels: dict[str, bytes]) -> Machine:
    plan = building.plan(kernels, LAUNCHERS.read_bytes())
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return Machine.load(plan.build(place))


def layers_judged(machine: Machine) -> str:
    found = (judge(multiplied(machine, layer, count), carried.truth(layer), BFLOAT16_BAR).why for layer, count in SHAPES)
    return next(filter(None, found), "")


def many_judged(machine: Machine) -> str:
    """More tokens than a block of a GPU with little shared memory has room for, which come in two parts."""
    return judge(decoded(machine, MANY, (MANY.hidden, MANY.intermediate), launches=4), carried.truth(MANY), BFLOAT16_BAR).why


def long_judged(machine: Machine) -> str:
    return carried.as_stored(machine, LONG)


JUDGES = (carried.experts_judged, carried.choices_judged, carried.columns_judged, layers_judged, many_judged, long_judged)


def test_the_prototype_is_right(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    assert [judged(machine) for judged in JUDGES] == [""] * 6


FAR, NO_BARRIER, COPIED = carried.FAR, carried.NO_BARRIER, "it is still being copied"
FAULTS = [
    ("no bias of the first byte", PRODUCTS, "0x8C8C8C8Bu", "0x8C8C8C8Cu", FAR),
    ("negative codes in another order", PRODUCTS, "0x88868480u * one", "0x80848688u * one", FAR),
    ("no upper nibbles", PRODUCTS, "words[word] >> 16", "words[word]", FAR),
    ("the low digit's carry", PRODUCTS, "bytes(0x80u, 0x0051u)", "bytes(0u, 0x0051u)", FAR),
    ("digits are not scaled", PRODUCTS, "kept - 13u - 1u", "kept - 13u", FAR),
    ("digits of small numbers", PRODUCTS, "larger(power, 15u)", "larger(power, 138u)", FAR),
    ("digits where others' weights are", PRODUCTS, "mine(lane / 8 == lane % 4)", "mine(true)", FAR),
    ("stages are not waited for", PRODUCTS, "wait_copies<kStages - 2>();\n        sync_warp", "sync_warp", COPIED),
    ("a stage too few is waited for", PRODUCTS, "wait_copies<kStages - 2>();\n        sync_warp", "wait_copies<kStages - 1>();\n        sync_warp",
     COPIED),
    ("lanes do not meet", PRODUCTS, "        sync_warp();\n", "", NO_BARRIER + "|" + COPIED),
    ("the stage that is multiplied is fetched", PRODUCTS, "        fetch();\n        uint8_t const* const here",
     "        fetch();\n        fetch();\n        uint8_t const* const here", COPIED + "|" + FAR),
    ("codes beyond the columns", PRODUCTS, "lane_ % 4 < left_ ? 16 : 0", "16", carried.OUTSIDE),
    ("scales beyond the columns", PRODUCTS, "left_ < kStageBlocks ? left_ : kStageBlocks, lane_", "kStageBlocks, lane_", FAR),
    ("sums of one lane", PRODUCTS, "of[token][octet] += exchange(of[token][octet], 2);", "", FAR),
    ("groups of other tokens", EXPERTS, "<< 4 * member;", "<< 2 * member;", carried.OUTSIDE),
    ("the first launch does not wait", EXPERTS, "  wait_for_predecessor();\n  release_successor();", "  release_successor();", carried.NOT_WAITED),
    ("the second launch does not wait", EXPERTS, "    wait_for_predecessor();\n    if (routing", "    if (routing", carried.NOT_WAITED),
    ("rounds do not meet", EXPERTS, "if (round_end != 0) sync_block();", "", "there is no barrier between"),
    ("experts are ordered before they are there", EXPERTS, "lane);\n  sync_block();\n  int const entry", "lane);\n  int const entry", NO_BARRIER),
    ("slices of the warp before", EXPERTS, "plan.slices_on = warps % plan.slices", "plan.slices_on = 0", FAR + "|" + NO_BARRIER),
    ("two pieces ahead", GEMV, "plan.stages >= kStages &&", "", COPIED + "|" + NO_BARRIER),
    ("32 rows without room", GEMV, "!few && split_bytes<4>(gemv, plan) <= shared_bytes", "!few", "bytes of shared memory, there are"),
    ("all tokens at once", EXPERTS, "return room < 1 ? 1 : room;", "return 16;", "refuses its arguments"),
    ("scales of the rows before", GEMV, "piece.part * kWideRows", "0 * kWideRows", FAR + "|" + NO_BARRIER + "|" + COPIED),
    ("warps do not meet before they add", GEMV, ".run(one);\n  sync_block();", ".run(one);", NO_BARRIER),
    ("scales are not waited for", GEMV, "    wait_copies<kStages - 2>();\n", "", COPIED),
    ("rows beyond the weight", GEMV, "row < gemv.rows ? row : 0", "row", carried.OUTSIDE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "was", "becomes", "says"), [one[1:] for one in FAULTS], ids=[f"{one[1]}: {one[0]}" for one in FAULTS]
)
def test_a_fault_in_its_text_is_refused(kernels: dict[str, bytes], name: str, was: str, becomes: str, says: str) -> None:
    text = kernels[name].decode()
    assert was in text
    machine = built({**kernels, name: text.replace(was, becomes).encode()})
    said: list[str] = []
    for judged in JUDGES:
        said.append(carried.refused(partial(judged, machine)))
        if any(one in said[-1] for one in says.split("|")):
            return
    pytest.fail(f"it says {said}")


@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_fixed_point_costs_nothing_that_counts(kernels: dict[str, bytes], tokens: int) -> None:
    machine = built(kernels)
    layer = Experts(tokens, experts=8, hidden=192, intermediate=352)
    found = measure(decoded(machine, layer, (192, 352)), carried.truth(layer))
    assert found.overall <= 1.05 * measure(carried.ideal(layer), carried.truth(layer)).overall
    dense = Linear(min(tokens, 4), 1184, 244, "mxfp4")
    bar = 1.05 * measure(bfloat16(carried.truth(dense).reference), carried.truth(dense)).overall
    assert measure(multiplied(machine, dense), carried.truth(dense)).overall <= bar


def test_a_number_that_is_none_spoils_its_own_token_and_no_other(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    good = decoded(machine, replace(carried.CROWDED), (96, 96))
    for number in (np.nan, np.inf):
        spoiled = replace(carried.CROWDED)
        spoiled.inputs[5, 7] = number
        found = decoded(machine, spoiled, (96, 96))
        assert np.isnan(found[5]).all()
        assert np.array_equal(np.delete(found, 5, axis=0), np.delete(good, 5, axis=0))


def test_more_tokens_than_are_multiplied_together_are_refused(kernels: dict[str, bytes]) -> None:
    with pytest.raises(KernelFault, match="refuses its arguments"):
        multiplied(built(kernels), Linear(5, 160, 56, "mxfp4"))


def test_a_scale_that_is_none_is_seen_behind_a_limit(kernels: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(layer: Experts, sizes: emulated.Sizes) -> emulated.Stored:
        weights = emulated_stored(layer, sizes)
        weights.up_scales[:, 0] = 255  # of the first block of up's first row
        return weights

    emulated_stored = emulated.stored
    monkeypatch.setattr(emulated, "stored", spoiled)
    assert np.isnan(decoded(built(kernels), replace(carried.EXPERTS, elsewhere=0), (96, 160))).all()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_121a"])
def test_the_program_and_all_kinds_of_kernels_compile(architecture: str, tmp_path: Path) -> None:
    variants: dict[str, list[str]] = {decode_prototype.CARRIED: [], "prototype": ["-DPROTOTYPE"]}
    with Stores(load(ROOT), Place(places.root())) as stores:
        made = decode_prototype.build(carried_kernels(stores), variants, architecture, tmp_path, toolkit.find(places.root()))
    assert [path.name for path in made if path.read_bytes().startswith(b"\x7fELF")] == [
        "bench.o",
        "variant-carried.o",
        "variant-prototype.o",
    ]


def test_what_nvcc_refuses_is_a_line(kernels: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"^nvcc for sm_1: .*sm_1") as found:
        decode_prototype.build(kernels, {}, "sm_1", tmp_path, toolkit.find(places.root()))
    assert "\n" not in str(found.value)


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit, match="2"):
        decode_prototype.main(arguments)
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "given",
    [
        "fast",
        "fast=",
        "fast=-O3",
        "fast=PROTOTYPE_WARP=16",
        "carried=PROTOTYPE_WARPS=16",
        "mxfp4=PROTOTYPE_WARPS=16",
        "a b=PROTOTYPE_WARPS=16",
    ],
)
def test_a_variant_that_is_none_is_refused_in_a_line(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "and macros as PROTOTYPE_WARPS=16" in refusal(["program", "--variant", given], capsys)


@pytest.mark.parametrize("place", ["", "nowhere/program"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_built(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be written" in refusal([str(tmp_path / place)], capsys)
