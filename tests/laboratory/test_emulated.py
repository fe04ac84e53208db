# SPDX-License-Identifier: Apache-2.0
"""The machine that runs CUDA kernels on a CPU: what it computes, and every fault that it has to refuse."""

import contextlib
import shutil
from enum import IntEnum, auto
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from laboratory.emulated import SHARED_LIMIT, BufferKind, KernelFault, Machine, building
from laboratory.emulated.building import CannotBuild
from laboratory.mxfp4 import in_every_order
from stack.store import cache as places

BLOCKS, THREADS = 3, 64
NUMBERS = np.arange(BLOCKS * THREADS, dtype=np.float32)
WEIGHTS = 1000 * NUMBERS[::-1].copy()
SCALES = np.array([1, 200, 3], np.uint8)
SOURCE = Path(__file__).with_name("faulty.cpp")

pytestmark = pytest.mark.kernels


class Fault(IntEnum):
    """As in faulty.cpp."""

    NONE = 0
    NO_SYNC_BLOCK = auto()
    NO_SECOND_SYNC_BLOCK = auto()
    BALLOT_FOR_SYNC_BLOCK = auto()
    OVERWRITES_WHAT_IS_READ = auto()
    TWO_WRITERS = auto()
    READS_BEYOND_INPUT = auto()
    READS_BEYOND_WEIGHTS = auto()
    READS_BEYOND_SCALES = auto()
    WRITES_BEYOND_OUTPUT = auto()
    WRITES_INPUT = auto()
    MISALIGNED_LOAD = auto()
    MISALIGNED_LOAD_ONCE = auto()
    READS_UNWRITTEN_SHARED = auto()
    READS_UNWRITTEN_OUTPUT = auto()
    BLOCKS_SHARE_OUTPUT = auto()
    LANE_IS_MISSING = auto()
    LANES_DIVERGE = auto()
    NOT_UNIFORM = auto()
    LAST_LANE_NOT_UNIFORM = auto()
    READS_BEFORE_WAIT = auto()
    BYTE_BEFORE_WAIT = auto()
    WRITES_BEFORE_WAIT = auto()
    NEVER_WAITS = auto()
    INPUT_ONCE = auto()
    BYTE_OF_INPUT_ONCE = auto()
    SHARED_ONCE = auto()
    OUTPUT_ONCE = auto()
    WRONG_BYTE = auto()


NO_BARRIER = r"another thread reads it, and there is no barrier between|thread \d+ wrote it, and there is no barrier between"
NOT_WAITED = "the kernel before may still use it: it was not waited for"
STILL_WRITTEN = "the kernel before may still write it when this one begins, and it is loaded as what is only read"
WRITTEN = "kernels write it, and it is loaded as what is only read"
BEYOND = "outside of every buffer, \\+0 bytes from the end of"
REFUSED = {
    Fault.NO_SYNC_BLOCK: f"of shared memory: ({NO_BARRIER}|nobody has written it)",
    Fault.NO_SECOND_SYNC_BLOCK: f"of shared memory: ({NO_BARRIER}|nobody has written it)",
    Fault.BALLOT_FOR_SYNC_BLOCK: f"of shared memory: ({NO_BARRIER})",
    Fault.OVERWRITES_WHAT_IS_READ: NO_BARRIER,
    Fault.TWO_WRITERS: NO_BARRIER,
    Fault.READS_BEYOND_INPUT: rf"block \(2, 0, 0\), thread 60: reads 16 bytes: {BEYOND} input",
    Fault.READS_BEYOND_WEIGHTS: rf"block \(2, 0, 0\), thread 60: reads 16 bytes: {BEYOND} weights",
    Fault.READS_BEYOND_SCALES: rf"block \(2, 0, 0\), thread \d+: reads 1 bytes: {BEYOND} scales",
    Fault.WRITES_BEYOND_OUTPUT: f"another block of this launch uses it, too|{BEYOND} output",
    Fault.WRITES_INPUT: "of input: it is not to be written",
    Fault.MISALIGNED_LOAD: "of input: misaligned",
    Fault.MISALIGNED_LOAD_ONCE: "of weights: misaligned",
    Fault.READS_UNWRITTEN_SHARED: "of shared memory: nobody has written it",
    Fault.READS_UNWRITTEN_OUTPUT: "at 0 of unwritten: nobody has written it",
    Fault.BLOCKS_SHARE_OUTPUT: "another block of this launch uses it, too",
    Fault.LANE_IS_MISSING: "comes to uniform, lane 8 of its warp to its end|waits at uniform without end: thread 40 is at its end",
    Fault.LANES_DIVERGE: "lane . of its warp to (uniform|ballot)",
    Fault.NOT_UNIFORM: "comes to uniform with [02] in lane 0 and [13] in lane 16",
    Fault.LAST_LANE_NOT_UNIFORM: "comes to uniform with [01] in lane 0 and [12] in lane 31",
    Fault.READS_BEFORE_WAIT: f"of input: {NOT_WAITED}",
    Fault.BYTE_BEFORE_WAIT: f"of input: {NOT_WAITED}",
    Fault.WRITES_BEFORE_WAIT: f"of output: {NOT_WAITED}",
    Fault.NEVER_WAITS: NOT_WAITED,
    Fault.INPUT_ONCE: f"reads 16 bytes at .* of input: {STILL_WRITTEN}",
    Fault.BYTE_OF_INPUT_ONCE: f"reads 1 bytes at 0 of input: {STILL_WRITTEN}",
    Fault.SHARED_ONCE: f"of shared memory: {WRITTEN}",
    Fault.OUTPUT_ONCE: f"of output: {WRITTEN}",
    Fault.WRONG_BYTE: "permutes bytes that are not among the eight",
}


@pytest.fixture(scope="module")
def library() -> Path:
    plan = building.plan({}, SOURCE.read_bytes())
    place = places.root() / "emulated" / plan.name
    with places.lock(place):
        return plan.build(place)


@pytest.fixture(scope="module")
def machine(library: Path) -> Machine:
    return Machine.load(library)


def turned(machine: Machine, fault: Fault, seed: int = 0, shared: int = 2 * THREADS * 4, threads: int = THREADS) -> np.ndarray:
    """The output of the kernel; a launch may begin early."""
    output, unwritten = np.empty_like(NUMBERS), np.empty(1, np.int32)
    machine.begin(seed)
    addresses = [
        machine.give("input", NUMBERS, BufferKind.INPUT),
        machine.give("weights", WEIGHTS, BufferKind.CONSTANT),
        machine.give("scales", SCALES, BufferKind.CONSTANT),
        machine.give("output", output, BufferKind.OUTPUT),
        machine.give("unwritten", unwritten, BufferKind.OUTPUT),
    ]
    machine.call("emulated_turn", int(fault), *addresses, BLOCKS, threads, shared, 1)
    return output


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_kernel_that_is_right_runs_in_any_order(machine: Machine, seed: int) -> None:
    numbers = (NUMBERS + WEIGHTS) * SCALES.repeat(THREADS)
    rows = numbers.reshape(BLOCKS, THREADS // 32, 32)[:, :, ::-1]
    expected = rows + np.roll(rows, 1, axis=1)
    assert np.array_equal(turned(machine, Fault.NONE, seed), expected.ravel())
    assert machine.kernels[0].partition("(")[0].endswith("turn_kernel")
    assert (len(machine.kernels), machine.shared, machine.unwritten("output"), machine.unwritten("unwritten")) == (1, 512, 0, 4)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("fault", REFUSED, ids=lambda fault: fault.name.lower())
def test_a_fault_is_refused_whatever_the_order_of_threads(machine: Machine, fault: Fault, seed: int) -> None:
    with pytest.raises(KernelFault, match=REFUSED[fault]) as found:
        turned(machine, fault, seed)
    assert str(found.value).startswith("turn_kernel, block (")
    assert "\n" not in str(found.value)
    turned(machine, Fault.NONE, seed)  # what was left in the middle disturbs nobody


def test_outputs_that_depend_on_the_order_or_are_not_all_written_are_refused(machine: Machine) -> None:
    numbers = np.arange(4, dtype=np.uint16)
    assert np.array_equal(in_every_order(machine, lambda _: numbers), numbers)
    with pytest.raises(RuntimeError, match="other bits with threads in another order"):
        in_every_order(machine, lambda early: numbers + np.uint16(early))

    def leaves_out(_: bool) -> np.ndarray:
        machine.give("output", numbers, BufferKind.OUTPUT)
        return numbers

    with pytest.raises(RuntimeError, match="8 bytes of the output are not written"):
        in_every_order(machine, leaves_out)


def test_every_fault_is_tried() -> None:
    assert set(REFUSED) == set(Fault) - {Fault.NONE}
    assert SOURCE.read_text().split("enum Fault {")[1].split("}")[0].count(",") == len(Fault)


def test_a_fault_names_its_line(machine: Machine) -> None:
    with pytest.raises(KernelFault) as found:
        turned(machine, Fault.WRITES_INPUT)
    (line,) = [number for number, text in enumerate(SOURCE.read_text().splitlines(), 1) if "if (fault == kWritesInput)" in text]
    assert str(found.value).endswith(f"(launchers.cpp:{line})")


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.WRITES_INPUT])
def test_a_launch_gives_the_stacks_of_its_threads_back(library: Path, tmp_path: Path, fault: Fault) -> None:
    """Many libraries in one process used to take all of its 65,530 mappings; then no thread begins, and who waits for one hangs."""

    def mappings() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    own = Machine.load(shutil.copy(library, tmp_path / "own.so"))
    before = mappings()
    with contextlib.suppress(KernelFault):
        turned(own, fault)
    assert mappings() - before < THREADS


def test_launches_that_no_gpu_takes_are_refused(machine: Machine) -> None:
    with pytest.raises(KernelFault, match=f"turn_kernel: 101377 bytes of shared memory, there are {SHARED_LIMIT}"):
        turned(machine, Fault.NONE, shared=SHARED_LIMIT + 1)
    with pytest.raises(KernelFault, match="48 threads a block are not 1 to 32 whole warps"):
        turned(machine, Fault.NONE, threads=48)
    turned(machine, Fault.NONE, shared=SHARED_LIMIT)


def test_what_is_only_read_may_be_of_an_earlier_kernel_that_has_ended(machine: Machine) -> None:
    numbers = np.arange(32, dtype=np.uint32)
    output = np.empty((2, 8), np.uint32)
    machine.begin()
    given = machine.give("input", numbers, BufferKind.INPUT)
    addresses = [machine.give(f"output {number}", row, BufferKind.OUTPUT) for number, row in enumerate(output)]
    machine.call("emulated_once", given, addresses[0], 0)
    machine.call("emulated_once", given, addresses[1], 1)  # its predecessor waited for whoever wrote the input
    assert np.array_equal(output, [numbers[::4]] * 2)
    with pytest.raises(KernelFault, match=f"of output 1: {WRITTEN}"):
        machine.call("emulated_once", addresses[1], addresses[0], 0)


def bits_of(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(ml_dtypes.bfloat16).view(np.uint16)


def test_matrices_lie_as_ptx_says(machine: Machine) -> None:
    """PTX ISA, mma.m16n8k16 with .bf16: the fragments by their own formulas there."""
    draw = np.random.default_rng(0)
    a, b = (draw.integers(-8, 9, shape).astype(np.float32) for shape in ((16, 16), (16, 8)))
    of_a, of_b = np.empty((32, 4, 2), np.uint16), np.empty((32, 2, 2), np.uint16)
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for i in range(8):
            row = group if i in (0, 1, 4, 5) else group + 8
            of_a[lane, i // 2, i % 2] = bits_of(a[row, inside * 2 + (i & 1) + (8 if i >= 4 else 0)])
        for i in range(4):
            of_b[lane, i // 2, i % 2] = bits_of(b[inside * 2 + (i & 1) + (8 if i >= 2 else 0), group])
    sums, votes = np.empty((32, 4), np.float32), np.empty(32, np.uint32)
    words_a, words_b = of_a.view(np.uint32)[..., 0].copy(), of_b.view(np.uint32)[..., 0].copy()
    machine.begin(3)
    given = [machine.give("a", words_a, BufferKind.INPUT), machine.give("b", words_b, BufferKind.INPUT)]
    given += [machine.give(name, array, BufferKind.OUTPUT) for name, array in (("s", sums), ("v", votes))]
    machine.call("emulated_matrix", *given)
    product = a @ b + 0.5
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for i in range(4):
            assert sums[lane, i] == product[group + (8 if i >= 2 else 0), inside * 2 + (i & 1)]
    assert set(votes.tolist()) == {sum(int(words_a.ravel()[lane] & 1) << lane for lane in range(32))}


def test_products_of_bytes_are_those_of_the_instructions_layout(machine: Machine) -> None:
    """Lanes as the PTX manual has them for m16n8k32: `a` without a sign, `b` with one."""
    draw = np.random.default_rng(5)
    a, b = draw.integers(0, 256, (16, 32), dtype=np.uint8), draw.integers(-128, 128, (32, 8), dtype=np.int8)
    of_a, of_b = np.empty((32, 4, 4), np.uint8), np.empty((32, 2, 4), np.int8)
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for i in range(16):
            of_a[lane, i // 4, i % 4] = a[group + 8 * (i // 4 % 2), inside * 4 + i % 4 + 16 * (i // 8)]
        for i in range(8):
            of_b[lane, i // 4, i % 4] = b[inside * 4 + i % 4 + 16 * (i // 4), group]
    words_a, words_b = of_a.view(np.uint32)[..., 0].copy(), of_b.view(np.uint32)[..., 0].copy()
    sums, permuted, dots = np.empty((32, 4), np.int32), np.empty(32, np.uint32), np.empty(32, np.int32)
    machine.begin(3)
    given = [machine.give("a", words_a, BufferKind.INPUT), machine.give("b", words_b, BufferKind.INPUT)]
    given += [machine.give(name, array, BufferKind.OUTPUT) for name, array in (("s", sums), ("p", permuted), ("d", dots))]
    machine.call("emulated_bytes", *given)
    product = a.astype(np.int64) @ b.astype(np.int64)
    for lane in range(32):
        group, inside = divmod(lane, 4)
        for i in range(4):
            assert sums[lane, i] == product[group + 8 * (i // 2), inside * 2 + i % 2] + i - 1
        assert dots[lane] == of_a[lane, 0].astype(np.int64) @ of_b[lane, 0].astype(np.int64) + lane
        chosen = [int(words_b[lane, 0]) >> 4 * place & 15 for place in range(4)]
        eight = of_a[lane, :2].ravel()
        expected = [(255 if eight[one & 7] & 128 else 0) if one & 8 else int(eight[one & 7]) for one in chosen]
        assert int(permuted[lane]) == sum(byte << 8 * place for place, byte in enumerate(expected))


class CopyFault(IntEnum):
    """As in faulty.cpp."""

    NOTHING = 0
    NOT_WAITED_FOR_COPIES = auto()
    GROUP_TOO_FEW = auto()
    NO_SYNC_WARP = auto()
    COPIES_OVER_WHAT_IS_READ = auto()
    WRITES_WHAT_IS_COPIED = auto()
    COPIES_BEYOND_WEIGHTS = auto()
    COPIES_MISALIGNED = auto()
    COPIES_TO_OUTPUT = auto()
    COPIES_INPUT = auto()
    OTHER_BITS = auto()
    OTHER_WARP = auto()


COPIED = "of shared memory: it is still being copied"
COPY_REFUSED = {
    CopyFault.NOT_WAITED_FOR_COPIES: COPIED,
    CopyFault.GROUP_TOO_FEW: COPIED,
    CopyFault.NO_SYNC_WARP: f"{NO_BARRIER}|{COPIED}|of shared memory: nobody has written it",
    CopyFault.COPIES_OVER_WHAT_IS_READ: f"{NO_BARRIER}|{COPIED}",
    CopyFault.WRITES_WHAT_IS_COPIED: COPIED,
    CopyFault.COPIES_BEYOND_WEIGHTS: "thread 63: reads 8 bytes: outside of every buffer, .* of weights",
    CopyFault.COPIES_MISALIGNED: "of weights: misaligned",
    CopyFault.COPIES_TO_OUTPUT: "copies to what is not shared memory",
    CopyFault.COPIES_INPUT: f"of input: {STILL_WRITTEN}",
    CopyFault.OTHER_BITS: "comes to exchange with other bits than its warp",
    CopyFault.OTHER_WARP: f"{NO_BARRIER}|{COPIED}|of shared memory: nobody has written it",
}


def copied(machine: Machine, fault: CopyFault, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights, and the output of the kernel that copies."""
    weights, output = np.arange(THREADS * 4, dtype=np.uint32) * np.uint32(0x01234567), np.empty(THREADS, np.uint32)
    machine.begin(seed)
    given = [machine.give("weights", weights, BufferKind.CONSTANT), machine.give("input", weights.copy(), BufferKind.INPUT)]
    machine.call("emulated_copy", int(fault), *given, machine.give("output", output, BufferKind.OUTPUT), THREADS)
    return weights, output


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_are_there_once_they_were_waited_for(machine: Machine, seed: int) -> None:
    weights, output = copied(machine, CopyFault.NOTHING, seed)
    rows = weights.reshape(THREADS, 4).copy()
    rows[1::2, 2:] = 0
    words = weights[:THREADS] & np.uint32(0xFFFFFF)
    words[3::4] = 0
    sums = rows.sum(axis=1, dtype=np.uint32) + words
    assert np.array_equal(output, (sums.reshape(-1, 2).sum(axis=1, dtype=np.uint32)).repeat(2))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("fault", COPY_REFUSED)
def test_a_fault_with_copies_is_refused_whatever_the_order_of_threads(machine: Machine, fault: CopyFault, seed: int) -> None:
    with pytest.raises(KernelFault, match=COPY_REFUSED[fault]):
        copied(machine, fault, seed)
    copied(machine, CopyFault.NOTHING, seed)


def test_every_fault_with_copies_is_tried() -> None:
    assert set(COPY_REFUSED) == set(CopyFault) - {CopyFault.NOTHING}
    assert SOURCE.read_text().split("enum CopyFault {")[1].split("}")[0].count(",") == len(CopyFault)


def test_products_and_roundings_are_those_of_bfloat16(machine: Machine) -> None:
    """Held against float64 and ml_dtypes: all exponents, subnormal products, ties."""
    draw = np.random.default_rng(1)
    a, b = (draw.integers(0, 2**32, 2**16, dtype=np.uint32) for _ in range(2))
    near_one = np.uint32(0x3F803F80)
    a[: 2**14] &= np.uint32(0x80FF80FF)  # subnormal numbers and the first normal ones
    b[: 2**14] = b[: 2**14] & np.uint32(0x01FF01FF) | near_one
    c = draw.integers(0, 2**32, 2**16, dtype=np.uint32)
    c[: 2**14] = c[: 2**14] & np.uint32(0xFFFF0000) | np.uint32(0x8000)  # ties
    products, rounded = np.empty_like(a), np.empty(len(c), np.uint16)
    machine.begin()
    given = [machine.give(name, array, BufferKind.INPUT) for name, array in (("a", a), ("b", b), ("c", c))]
    outputs = [machine.give(name, array, BufferKind.OUTPUT) for name, array in (("p", products), ("r", rounded))]
    machine.call("emulated_number", *given, *outputs, len(a))

    with np.errstate(over="ignore", invalid="ignore"):
        factors = [one.view(np.uint16).view(ml_dtypes.bfloat16).astype(np.float64) for one in (a, b)]
        exact = factors[0] * factors[1]
        expected = exact.astype(ml_dtypes.bfloat16)
        nearest = c.view(np.float32).astype(ml_dtypes.bfloat16)
    found = products.view(np.uint16).view(ml_dtypes.bfloat16)
    assert np.count_nonzero((np.abs(exact) > 0) & (np.abs(exact) < 2.0**-126)) > 1000
    for one, other in ((found, expected), (rounded.view(ml_dtypes.bfloat16), nearest)):
        nan = np.isnan(other.astype(np.float32))
        assert np.array_equal(np.isnan(one.astype(np.float32)), nan)
        assert np.array_equal(one.view(np.uint16)[~nan], other.view(np.uint16)[~nan])


def test_a_folder_may_be_named_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plan = building.plan({}, b"int number = 1;\n")
    assert plan.build(Path("out") / plan.name).is_file()
    assert plan.build(Path("another"), plan.machine(Path("machine"))).is_file()
    assert not list((tmp_path / "another").glob("*.o"))


def test_without_a_compiler_or_with_kernels_that_do_not_compile_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotBuild, match=r"do not compile for this CPU: launchers\.cpp:1:.*warp_size"):
        building.plan({}, b"int number = warp_size;\n").build(tmp_path / "wrong")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CannotBuild, match=r"there is no C\+\+ compiler no-such-compiler"):
        building.plan({})
