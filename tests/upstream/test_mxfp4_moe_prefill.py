# SPDX-License-Identifier: Apache-2.0
"""The series mxfp4-decode in FlashInfer: the kernels for many tokens on SM90.

No CPU runs their instructions for matrices. What can be wrong without one runs here, compiled from their own sources: how codes and
scales become BF16, which column each of them belongs to, and how much memory Python gives the kernels.
"""

import ctypes
import importlib

import numpy as np
import numpy.typing as npt
import on_cpu
import pytest
import support

from laboratory.emulated import building
from stack.validation.numerics.formats import E2M1, decode

with support.quiet():
    from flashinfer.compilation_context import CompilationContext
    from flashinfer.jit import env as jit_env

PREFILL = "flashinfer/add-an-experimental-mxfp4-moe-for-many-tokens-on-sm90.patch"

# Most of what the patch brings needs a GPU, and is skipped here.
PROVES = {
    PREFILL: [
        "test_every_code_and_scale_becomes_bfloat16",
        "test_columns_of_both_operands_are_permuted_alike",
        "test_a_row_of_entries_has_each_column_once",
        "test_the_module_is_for_sm90a",
        "tests/experimental/test_mxfp4_moe_prefill.py::test_nothing_is_refused",
        "tests/experimental/test_mxfp4_moe_prefill.py::test_other_devices_are_refused",
        "tests/experimental/test_mxfp4_moe_prefill.py::test_the_api_is_marked",
    ],
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

pytestmark = pytest.mark.filterwarnings("ignore")

LAUNCHERS = b"""
#include "flashinfer/mxfp4/prefill_planes.cuh"
#include "flashinfer/mxfp4/prefill_weights.cuh"
using namespace flashinfer::mxfp4;

extern "C" int column(int part, int place) { return column_at(part, place); }

extern "C" int offset(int rows, int plane, int row, int part) { return static_cast<int>(part_offset(rows, plane, row, part)); }

// codes: of two rows two words each; made: of two words, two steps, four registers each
extern "C" void made(uint32_t const* codes, uint32_t const* scales, uint32_t* made) {
  StoredWeights stored{{{codes[0], codes[1]}, {codes[2], codes[3]}}, {scales[0], scales[1]}, false};
  stored.large = ((scales[0] | scales[1]) & kLargeScale) != 0;
  Weights both[2];
  convert<0>(both[0], stored);
  convert<1>(both[1], stored);
  for (int i = 0; i < 16; ++i) made[i] = both[i / 8].a[i / 4 % 2][i % 4];
}
"""
SCALES = range(255)
"""All but NaN."""


@pytest.fixture(name="library", scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels' own functions, for this machine's CPU."""
    plan = building.plan(building.headers(on_cpu.TREE), LAUNCHERS)
    return ctypes.CDLL(str(plan.build(tmp_path_factory.mktemp("prefill") / plan.name)))


def converted(library: ctypes.CDLL, codes: npt.NDArray[np.uint8], scales: tuple[int, int]) -> npt.NDArray[np.float32]:
    """Convert 16 codes of two rows; return the numbers by word, step, register and half of it: [2, 2, 4, 2]."""
    nibbles = codes.reshape(4, 8).astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)
    words = np.bitwise_or.reduce(nibbles, axis=1).astype(np.uint32)
    made = np.zeros(16, np.uint32)
    given = np.array(scales, np.uint32)
    library.made(*(array.ctypes.data_as(ctypes.c_void_p) for array in (words, given, made)))
    halves = np.stack([made << 16, made & 0xFFFF0000], axis=1).astype(np.uint32)
    return halves.view(np.float32).reshape(2, 2, 4, 2)


def placed(library: ctypes.CDLL, lane: int) -> npt.NDArray[np.int64]:
    """For each number of `converted`, the column of 64 by which the matrix multiplication multiplies it in lane `lane` of four."""
    columns = np.empty((2, 2, 4, 2), np.int64)
    for word, step, register, half in np.ndindex(*columns.shape):
        # Registers 0 and 1 have products 2 lane and the next of 16, registers 2 and 3 these and 8, that is the next 16 bytes.
        part = 2 * (2 * word + step) + register // 2
        columns[word, step, register, half] = library.column(part, 2 * lane + half)
    return columns


def test_every_code_and_scale_becomes_bfloat16(library: ctypes.CDLL) -> None:
    codes = np.stack([np.arange(16), np.roll(np.arange(16), 5)]).astype(np.uint8)
    columns = placed(library, 0)
    for scale in SCALES:
        other = 254 - scale
        made = converted(library, codes, (scale, other))
        for register, factor in ((0, scale), (1, other), (2, scale), (3, other)):
            right = decode(E2M1, codes[register % 2][columns[:, :, register]]).astype(np.float64) * 2.0 ** (factor - 127)
            right = np.where(np.abs(right) > float(np.finfo(np.float32).max), np.sign(right) * np.inf, right)
            assert np.array_equal(made[:, :, register].astype(np.float64), right), (scale, register)


def test_columns_of_both_operands_are_permuted_alike(library: ctypes.CDLL) -> None:
    # A lane's codes are columns 16 t to 16 t + 15: the one with number n has to meet column 16 t + n.
    for lane in range(4):
        columns = placed(library, lane)
        for number in range(16):
            codes = np.zeros((2, 16), np.uint8)
            codes[:, number] = 2  # 1.0
            found = np.unique(columns[converted(library, codes, (127, 127)) == 1.0])
            assert found.tolist() == [16 * lane + number]


def test_a_row_of_entries_has_each_column_once(library: ctypes.CDLL) -> None:
    columns = [library.column(part, place) for part in range(8) for place in range(8)]
    assert sorted(columns) == list(range(64))
    rows = 24
    offsets = [library.offset(rows, plane, row, part) for plane in range(3) for row in range(rows) for part in range(8)]
    assert sorted(offsets) == list(range(0, 3 * rows * 128, 16))


def test_the_module_is_for_sm90a(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_env, "FLASHINFER_CSRC_DIR", on_cpu.TREE / "csrc")
    monkeypatch.setenv("FLASHINFER_CUDA_ARCH_LIST", "9.0a")
    module = importlib.import_module("flashinfer.experimental.mxfp4_decode.prefill")
    monkeypatch.setattr(module, "current_compilation_context", CompilationContext())
    spec = module.gen_mxfp4_moe_prefill_module()
    assert [source.exists() for source in spec.sources] == [True]
    assert "sm_90a" in " ".join(spec.extra_cuda_cflags)
