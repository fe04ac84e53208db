# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's MXFP4 decode kernels on a CPU: right as they are carried, and with one fault each refused by a case or the machine.

VALIDATION_FLASHINFER names a source tree of FlashInfer in place of the carried one, for work on the kernels.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

from laboratory.emulated import KernelFault, Machine, building
from laboratory.faults import by_cases, planted
from laboratory.faults.by_cases import case_judged
from laboratory.faults.decode_faults import FAULTS
from laboratory.faults.judges import (
    CROWDED,
    EXPERTS,
    FEW_LONG,
    FEW_MIXED,
    IN_PARTS,
    JUDGES,
    LAYER,
    MANY,
    MIXED,
    OF_EXPERTS,
    ONE_LEFT,
    WHOLE,
    kernels_of,
    layer_judged,
    padding_judged,
    padding_of,
    quantizer_judged,
    spoils,
    tied,
    truth,
)
from laboratory.faults.planted import Fault, Judge
from laboratory.faults.range_faults import RANGE_FAULTS
from laboratory.mxfp4 import decoded, multiplied, tiled
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.store import cache as places
from stack.validation.kernels import carried_kernels
from stack.validation.numerics import ON_CPU
from stack.validation.numerics.cases import declared
from stack.validation.numerics.experts import Experts, swiglu
from stack.validation.numerics.formats import bfloat16
from stack.validation.numerics.judging import measure
from stack.validation.numerics.linear import Linear
from tests import keeping
from tests.keeping import Keep

ROOT = Path(__file__).parents[2]
QUICK = 2
"""Faults of each header that are planted in the quick tests, too."""

pytestmark = pytest.mark.slow


@cache
def judges_code() -> str:
    return keeping.code(Path(planted.__file__))


@pytest.fixture(scope="module")
def kernels() -> dict[str, bytes]:
    named = os.environ.get("VALIDATION_FLASHINFER")
    if named:
        return building.headers(Path(named))
    with Stores(load(ROOT), Place(places.root())) as stores:
        return carried_kernels(stores)


@pytest.fixture(scope="module")
def without_kernels() -> Path:
    """The machine, compiled once for all faults and kept."""
    plan = building.plan({})
    place = places.root() / "emulated" / f"machine-{plan.name}"
    with places.lock(place):
        return plan.machine(place)


def built(kernels: dict[str, bytes]) -> Machine:
    plan = building.plan(kernels)
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return Machine.load(plan.build(place))


@pytest.mark.parametrize("judge", [*OF_EXPERTS, layer_judged, quantizer_judged])
def test_the_kernels_are_right_as_they_are_carried(kernels: dict[str, bytes], judge: Judge, keep: Keep) -> None:
    inputs = {"sources and compiler": building.plan(kernels).digest, "judge": judge.__name__, "code": judges_code()}
    assert keep(inputs, lambda: {"said": judge(built(kernels))})["said"] == ""


@pytest.mark.kernels
def test_tokens_come_part_by_part_only_where_they_have_no_room(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    for layer, shape in ((replace(ONE_LEFT, tokens=10), WHOLE), (ONE_LEFT, IN_PARTS), (MANY, IN_PARTS)):
        up, down = kernels_of(machine, layer)
        assert "mxfp4_moe_up_kernel<false" in up
        assert shape in up
        assert "mxfp4_moe_down_kernel<false" in down


def faults() -> Iterator[object]:
    """All faults; two of each header belong to the quick tests."""
    seen: Counter[str] = Counter()
    for what, *fault in FAULTS:
        planted_in = Fault(*fault)
        seen[planted_in.header] += 1
        marks = [pytest.mark.kernels] if seen[planted_in.header] > QUICK else []
        yield pytest.param(planted_in, id=f"{planted_in.header}: {what}", marks=marks)


@pytest.mark.parametrize("fault", tuple(faults()))
def test_a_fault_in_their_text_is_refused(kernels: dict[str, bytes], without_kernels: Path, fault: Fault, keep: Keep) -> None:
    plan = fault.planted(kernels)
    found = keep({**fault.inputs(plan), "code": judges_code()}, lambda: {"said": fault.judged(plan, without_kernels)})
    assert fault.says in found["said"][-1]


AT_THE_ENDS = [case.name for case in declared() if ON_CPU in case.name and "/range/" in case.name]


@cache
def cases_code() -> str:
    return keeping.code(Path(by_cases.__file__))


@pytest.mark.kernels
@pytest.mark.parametrize("case", AT_THE_ENDS)
def test_a_case_at_the_ends_passes_the_carried_kernels(kernels: dict[str, bytes], case: str, keep: Keep) -> None:
    inputs = {"sources and compiler": building.plan(kernels).digest, "case": case, "code": cases_code()}
    assert keep(inputs, lambda: {"said": case_judged(case, built(kernels))})["said"] == ""


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("fault", "case"), [pytest.param(Fault(*fault), case, id=f"{fault[0]}: {what}") for what, *fault, case in RANGE_FAULTS]
)
def test_a_fault_at_the_ends_is_refused_by_a_case_of_the_command(
    kernels: dict[str, bytes], without_kernels: Path, fault: Fault, case: str, keep: Keep
) -> None:
    plan = fault.planted(kernels)
    inputs = {**fault.inputs(plan), "case": case, "code": cases_code()}
    found = keep(inputs, lambda: {"said": fault.judged(plan, without_kernels, [partial(case_judged, case)])})
    assert fault.says in found["said"][-1]


PREFILL = {file.name for file in (ROOT / "kernels/src/mxfp4-decode/prefill").rglob("*.cuh")}
"""Kernels of SM90's own instructions, which the emulated machine has not: test_prefill.py and a GPU's cases judge them."""


def test_every_header_has_its_faults(kernels: dict[str, bytes]) -> None:
    found = Counter(header for _, header, *_ in FAULTS)
    assert set(found) == set(JUDGES) == set(kernels) - {"primitives.cuh"} - PREFILL
    assert min(found.values()) >= QUICK


def test_no_two_faults_are_the_same_change(kernels: dict[str, bytes]) -> None:
    # Some faults are in both lists: a judge of the laboratory refuses them, and a case of the command.
    for faults_of in ([fault[1:4] for fault in FAULTS], [fault[1:4] for fault in RANGE_FAULTS]):
        changed = [(name, kernels[name].decode().replace(was, becomes)) for name, was, becomes in faults_of]
        assert len(set(changed)) == len(faults_of)


def ideal(layer: Experts) -> np.ndarray:
    """The output of a kernel that rounds to bfloat16 what is between the multiplications, and the output, and nothing else."""
    output = np.zeros((layer.tokens, layer.hidden))
    for one in layer.routed():
        expert = layer.expert(one.expert)
        gate_up = layer.inputs[one.rows].astype(np.float64) @ expert.gate_up.values().T + expert.gate_up_bias
        hidden = bfloat16(swiglu(gate_up)).astype(np.float64)
        output[one.rows] += one.weights[:, None] * (hidden @ expert.down.values().T + expert.down_bias)
    return bfloat16(output)


@pytest.mark.kernels
@pytest.mark.parametrize("tokens", [1, 8, 16])
def test_nothing_is_rounded_but_what_has_to_be(kernels: dict[str, bytes], tokens: int) -> None:
    machine = built(kernels)
    layer = Experts(tokens, experts=8, hidden=192, intermediate=352)
    found = measure(decoded(machine, layer, (192, 352)), truth(layer))
    assert found.overall <= 1.05 * measure(ideal(layer), truth(layer)).overall
    dense = Linear(tokens, 1184, 244, "mxfp4")
    bar = 1.05 * measure(bfloat16(truth(dense).reference), truth(dense)).overall
    for processors in (48, 4, 1):  # a shape of blocks each
        assert measure(multiplied(machine, dense, processors), truth(dense)).overall <= bar


@pytest.mark.kernels
def test_a_logit_or_an_input_that_is_no_number_spoils_its_own_token_and_no_other(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    assert all(spoils(machine, logit) for logit in (np.nan, -np.nan))
    layer = replace(LAYER)
    layer.x[2, 9] = np.nan
    found, good = multiplied(machine, layer), multiplied(machine, LAYER)
    assert np.isnan(found[2]).all()
    assert np.array_equal(np.delete(found, 2, axis=0), np.delete(good, 2, axis=0))


def test_who_cannot_choose_is_refused(kernels: dict[str, bytes]) -> None:
    machine = built(kernels)
    with pytest.raises(KernelFault, match="refuses its arguments"):
        decoded(machine, Experts(1, experts=4, hidden=64, intermediate=32, top=5), (64, 32), chooses=True)


def test_what_no_expert_here_has_is_zero(kernels: dict[str, bytes]) -> None:
    layers = (Experts(1, experts=4, hidden=96, intermediate=96, top=1, elsewhere=3, seed=seed) for seed in range(100))
    far = next(layer for layer in layers if (layer.route[0] < layer.elsewhere).all())
    assert not decoded(built(kernels), far, (96, 96)).any()


def test_what_a_case_says_of_its_experts_is_so() -> None:
    assert CROWDED.route[0].shape == (16, 4)
    assert np.array_equal(CROWDED.route[0][:, 0], CROWDED.route[0][:, 1])
    most = max(np.count_nonzero(CROWDED.route[0] == expert) for expert in range(4))
    assert most > 16  # more than two groups of those that are multiplied together
    assert (EXPERTS.route[0] < EXPERTS.elsewhere).any()
    best = [np.sort(row)[::-1][: tied().top + 1] for row in tied().logits]
    assert any(row[-1] == row[-2] for row in best)  # who comes last is chosen by its number
    assert len(set(np.signbit(tied().logits[0, :8]))) == 2
    assert tied().logits[1:].max() < 0
    for mixed in (MIXED, FEW_MIXED, *FEW_LONG):
        together = np.unique(mixed.route[0], return_counts=True)[1]
        assert together.min() == 1
        assert together.max() > 1
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


@pytest.mark.kernels
def test_who_shared_an_expert_with_padding_only_has_it_alone(kernels: dict[str, bytes]) -> None:
    layer = replace(MIXED, experts=8)
    padding = padding_of(layer)
    ids = layer.route[0]
    of_padding, of_others = (np.unique(ids[one], return_counts=True) for one in (padding, ~padding))
    alone = of_others[0][of_others[1] == 1]
    assert np.isin(alone, of_padding[0]).any()
    assert padding_judged(built(kernels), layer) == ""
