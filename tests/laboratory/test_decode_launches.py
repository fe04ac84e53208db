# SPDX-License-Identifier: Apache-2.0
"""The sizes of the decode kernels' launches for gpt-oss-120b: warps, waves, bytes on their way and shared memory, on a Spark and an H100."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from laboratory import mxfp4
from laboratory.emulated import SHARED_LIMIT, LaunchShape, Machine, building
from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.store import cache as places
from stack.validation.kernels import carried_kernels
from stack.validation.numerics.experts import Experts

ROOT = Path(__file__).parents[2]
WARP = 32
ROW = 2880 // 2
"""Bytes of codes in a row."""
AHEAD = 3
"""Rows that a warp's copies are ahead of what it multiplies."""
LATENCY = 0.7e-6
"""Seconds from asking memory to its answer: an assumption of docs/decode-kernels.md."""
OCTETS = 3
"""Eights of rows of a block of *down*."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Gpu:
    """Multiprocessors, shared memory of a block in bytes, and measured bytes a second."""

    processors: int
    shared: int
    bandwidth: float

    @property
    def needed(self) -> float:
        """Bytes that have to be on their way, so that memory is never idle."""
        return self.bandwidth * LATENCY


SPARK = Gpu(48, SHARED_LIMIT, 232e9)
H100 = Gpu(132, 232_448, 3.03e12)


@pytest.fixture(scope="module")
def machine() -> Machine:
    with Stores(load(ROOT), Place(places.root())) as stores:
        plan = building.plan(carried_kernels(stores))
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return Machine.load(plan.build(place))


def launches(machine: Machine, gpu: Gpu, tokens: int = 1) -> tuple[LaunchShape, LaunchShape]:
    up, down = mxfp4.launches(machine, Experts(tokens), gpu.processors, gpu.shared)
    return up, down


def on_their_way(launch: LaunchShape, blocks: int) -> int:
    return blocks * launch.threads // WARP * AHEAD * ROW


@pytest.mark.parametrize(("gpu", "warps"), [(SPARK, 12), (H100, 16)])
def test_one_token_has_as_many_warps_in_both_launches(machine: Machine, gpu: Gpu, warps: int) -> None:
    up, down = launches(machine, gpu)
    assert (up.blocks, up.threads, down.threads) == (gpu.processors, warps * WARP, warps * WARP)
    for launch in (up, down):
        assert launch.shared <= gpu.shared < 2 * launch.shared  # one block at a time on a multiprocessor


def test_on_a_spark_each_warp_of_down_has_one_eight_of_rows(machine: Machine) -> None:
    """Four experts' three eights are twelve: with eleven warps two would be cut, and their token read twice."""
    _, down = launches(machine, SPARK)
    assert Experts(1).top * OCTETS == down.threads // WARP


def test_the_last_wave_asks_for_more_than_memory_can_bring(machine: Machine) -> None:
    """*Down* has 123 blocks, 2.56 waves on a Spark: a last wave that is not full costs nothing as long as memory is busy."""
    for gpu, waves in ((SPARK, 2.56), (H100, 0.93)):
        up, down = launches(machine, gpu)
        assert down.blocks / gpu.processors == pytest.approx(waves, abs=0.01)
        last = down.blocks % gpu.processors or gpu.processors
        assert on_their_way(down, last) > 2 * gpu.needed
        assert on_their_way(up, up.blocks) > 2 * gpu.needed


def test_fewer_or_more_rows_a_block_leave_warps_idle_on_a_spark(machine: Machine) -> None:
    """Why a block of *down* has 24 rows there: rounds of its warps, one eight of rows each, until the last block has ended."""
    _, down = launches(machine, SPARK)
    warps, eights = down.threads // WARP, 2880 // 8 + 8  # of all rows in tiles of 128
    rounds = {}
    for octets in (1, 2, 3, 4, 8):
        blocks = -(-eights // octets)
        waves = -(-blocks // SPARK.processors)
        rounds[octets] = waves * -(-Experts(1).top * octets // warps)
    assert rounds == {1: 8, 2: 4, 3: 3, 4: 4, 8: 3}


@pytest.mark.parametrize(("tokens", "warps"), [(1, 12), (2, 8), (4, 8), (5, 8), (6, 4), (10, 4), (16, 4)])
def test_warps_of_up_on_a_spark(machine: Machine, tokens: int, warps: int) -> None:
    up, down = launches(machine, SPARK, tokens)
    assert up.threads // WARP == warps
    assert on_their_way(up, up.blocks) > 2 * SPARK.needed
    assert on_their_way(down, down.blocks % SPARK.processors) > 2 * SPARK.needed
