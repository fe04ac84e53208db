# SPDX-License-Identifier: Apache-2.0
"""SM120's kernels on SM90 as far as a machine without a GPU can say: the problem and its bars, what the launcher is given, the pieces."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from laboratory.sm120_on_sm90 import compiling as emulation
from laboratory.sm120_on_sm90.compiling import ARCHITECTURE, FOLDER, Sources
from laboratory.sm120_on_sm90.grouped import Packed, packed, swizzled
from stack.base.errors import StackError
from stack.carry.upstream_stores import Place, Stores
from stack.cli import cli
from stack.model.stack import load
from stack.proof.compiling import compiler, sass
from stack.store import cache as places
from stack.validation.numerics import SM120_ON_SM90, running
from stack.validation.numerics.blocks import MXFP4, MXFP8
from stack.validation.numerics.cases import BFLOAT16_BAR, declared
from stack.validation.numerics.formats import E2M1, E4M3, Array, Bytes, bfloat16, decode, decode_e8m0, unpack
from stack.validation.numerics.grouped import Grouped
from stack.validation.numerics.judging import judge
from stack.validation.numerics.kernels.sm120_on_sm90 import GROUPED
from stack.validation.numerics.tiles import TILES, Tile
from tests import keeping
from tests.keeping import Keep, Measured

ROOT = Path(__file__).parents[2]
MODEL = Path(__file__).with_name("sm120_on_sm90.cpp")
# Groups without tokens at the beginning, within and at the end; an input that is padded, outputs that fill no tile of 128.
SMALL = Grouped((0, 1, 5, 0, 130, 2, 0), 320, 200)


def scale_at(scales: Bytes, row: int, column: int) -> int:
    """One scale of the layout that the tensor cores read: tiles of 128 x 4 one after another, in a tile 32 x 4 x 4."""
    tile = row // 128 * (scales.shape[1] // 4) + column // 4
    return int(scales.reshape(-1)[tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4])


def launched(given: Packed, outputs: int) -> Array:
    """What FlashInfer's launcher computes of these buffers, by its own arithmetic of where each group's begin; slowly."""
    depth = given.a.shape[1]
    found = np.full((len(given.a), outputs), np.nan)
    for group in range(len(given.starts) - 1):
        first, after = (int(given.starts[place]) for place in (group, group + 1))
        scales_first = (first + group * 127) // 128 * 128
        spaced = given.b.reshape(-1)[group * outputs * depth :][: outputs * depth].reshape(outputs, depth // 16, 16)
        weight = decode(E2M1, unpack(np.ascontiguousarray(spaced[..., :8]).reshape(outputs, depth // 2)))
        by = np.array([[scale_at(given.b_scale[group], row, block) for block in range(depth // 32)] for row in range(outputs)])
        weight *= np.repeat(decode_e8m0(by.astype(np.uint8)), 32, axis=1)
        for row in range(first, after):
            mine = [scale_at(given.a_scale, scales_first + row - first, block) for block in range(depth // 32)]
            tokens = decode(E4M3, given.a[row]) * np.repeat(decode_e8m0(np.array(mine, np.uint8)), 32)
            found[row] = weight @ tokens
    return found


@cache
def small() -> Packed:
    return packed(SMALL)


def test_what_the_launcher_is_given_comes_to_the_reference() -> None:
    given = small()
    assert given.a.shape == (148, 384)  # four rows at a time, 128 inputs at a time
    assert given.starts.tolist() == [0, 0, 4, 12, 12, 144, 148, 148]
    found = launched(given, SMALL.outputs)
    # The scales of rows that are no tokens are NaN: what they reach is dropped.
    assert np.isnan(np.delete(found, given.kept, axis=0)).all()
    judgement = judge(bfloat16(found[given.kept]), SMALL.truth(), BFLOAT16_BAR)
    assert judgement.why == ""
    assert judgement.good.rel_l2 < 3e-3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights not padded", lambda given: replace(given, b=np.roll(given.b.reshape(-1), 8).reshape(given.b.shape))),
        ("a group's scales one tile on", lambda given: replace(given, a_scale=np.roll(given.a_scale, 128, axis=0))),
        ("weight's scales not swizzled", lambda given: replace(given, b_scale=np.stack(list(map(swizzled, given.b_scale))))),
        ("rows one group on", lambda given: replace(given, kept=np.roll(given.kept, 1))),
    ],
)
def test_what_is_packed_wrongly_is_rejected(name: str, change: object) -> None:
    wrong: Packed = change(small())  # type: ignore[operator]
    with np.errstate(invalid="ignore"):
        found = launched(wrong, SMALL.outputs)[wrong.kept]
    assert judge(found, SMALL.truth(), BFLOAT16_BAR).excess > 1, name


def test_scales_are_swizzled_as_the_tensor_cores_read_them() -> None:
    scales = np.random.default_rng(0).integers(0, 256, (256, 12)).astype(np.uint8)
    there = swizzled(scales)
    assert [[scale_at(there, row, column) for column in range(12)] for row in range(256)] == scales.tolist()


def test_groups_are_what_their_layers_are_alone() -> None:
    truth = SMALL.truth()
    for group, rows in SMALL.rows():
        alone = SMALL.layer(group).truth()
        np.testing.assert_array_equal(truth.reference[rows], alone.reference)
        assert SMALL.activations(group).form is MXFP8
        assert SMALL.weight(group).form is MXFP4
    assert sum(len(rows) for _, rows in SMALL.rows()) == SMALL.tokens == 138
    assert set(truth.mutants) >= {"the next group's weight", "activations' scales shifted by a block", "nibbles swapped"}


def asked_for() -> list[str]:
    return [one.name for one in declared() if "/grouped/" in one.name]


def test_the_emulation_has_cases_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SM120_ON_SM90, raising=False)
    assert asked_for() == []
    monkeypatch.setenv(SM120_ON_SM90, "there is none")
    names = asked_for()
    assert len(names) == len(set(names)) == 3 * len(TILES)
    assert "kernels/grouped/sm120-on-sm90-128x32-swapped/down/groups=8/m=193" in names


def test_without_sm90_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SM120_ON_SM90, "there is none")
    (case,) = (one for one in declared() if one.name.endswith("128x64-swapped/gate_up/groups=8/m=193"))
    said = running.outcome(case)
    assert said["outcome"] == "not-run"
    assert said["needs"] == ["sm90"]
    # Without torch in this interpreter, that is what is missing first.
    assert said["why"] in ("torch is not installed", "needs a GPU, sm90")


def test_without_its_library_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stack.validation.numerics.kernels.sm120_on_sm90.gpu", lambda *_: "")
    monkeypatch.setenv(SM120_ON_SM90, "there is no compiler")
    assert GROUPED[0].lacks() == "there is no compiler"
    monkeypatch.setenv(SM120_ON_SM90, __file__)
    assert GROUPED[0].lacks() == ""


@pytest.fixture(scope="module", name="sources")
def _sources() -> Sources:
    with Stores(load(ROOT), Place(places.root())) as stores:
        return emulation.sources(stores)


def inputs_of(sources: Sources, **more: str) -> dict[str, str]:
    """Name the inputs of a compilation: tree id, generated source, our own files, flags, compilers, and `more` of the test."""
    ours = keeping.code(MODEL, FOLDER / "entry.cpp", *sorted((FOLDER / "include").rglob("*.h*")))
    made = {
        "tree": sources.tree.name,
        "source": sources.unit.source.read_text(),
        "flags": repr(sources.unit.flags),
        "ours": ours,
    }
    return {**keeping.cuda(sources.toolkit), **made, **more}


def modelled(sources: Sources, folder: Path, *flags: str) -> dict[str, list[list[int]]]:
    """What the model of a warp says, compiled against the pinned headers."""
    model = folder / "model"
    there = (sources.tree / "3rdparty/cutlass/include", sources.toolkit.home / "include", sources.toolkit.home / "include/cccl")
    folders = [f"-I{FOLDER / 'include'}", *(word for one in there for word in ("-isystem", str(one)))]
    subprocess.run([*compiler.cxx(), "-std=c++17", *flags, *folders, str(MODEL), "-o", str(model)], check=True)
    said: dict[str, list[list[int]]] = {}
    for line in subprocess.run([model], capture_output=True, text=True, check=True).stdout.splitlines():
        name, *numbers = line.split()
        said.setdefault(name, []).append(list(map(int, numbers)))
    return said


@pytest.mark.kernels
def test_the_pieces_are_what_cute_says_of_the_instructions(sources: Sources, tmp_path: Path, keep: Keep) -> None:
    said = keep(inputs_of(sources, measures="pieces"), lambda: modelled(sources, tmp_path))
    ((*codes,),) = said["codes"]
    np.testing.assert_array_equal(64 * decode(E4M3, np.array(codes, np.uint8)), decode(E2M1, np.arange(16, dtype=np.uint8)))
    assert said["mma"] == [[128, 0], [128, 0]]
    assert said["ldmatrix"] == [[512, 0]]


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("right", "wrong", "sees"),
    [
        ("row % 8 * 4 + row / 8", "row / 8 * 16 + row % 4", "mma"),
        ("return column * 4;", "return column;", "mma"),
        ("lane % 4 * 2 + element % 2", "lane % 4 + 4 * (element % 2)", "mma"),
        ("8 * matrix + lane / 4", "8 * matrix + lane % 8", "ldmatrix"),
        ("(nibbles & 0xf0u) << 4", "(nibbles & 0xf0u) << 8", "ldmatrix"),
    ],
)
def test_a_piece_that_is_wrong_is_seen(sources: Sources, tmp_path: Path, keep: Keep, right: str, wrong: str, sees: str) -> None:
    text = (FOLDER / "include/sm120_on_sm90.h").read_text()
    assert text.count(right) == 1
    (tmp_path / "sm120_on_sm90.h").write_text(text.replace(right, wrong))
    inputs = inputs_of(sources, measures="wrong pieces", right=right, wrong=wrong)
    said = keep(inputs, lambda: modelled(sources, tmp_path, f"-I{tmp_path}"))
    assert {name for name in ("mma", "ldmatrix") if any(differ for _, differ in said[name])} == {sees}


REFUSED = "this kernel takes more shared memory than SM120 has"
PIECES = """
#include "cute/arch/mma_sm120.hpp"
#include "cute/arch/copy_sm100.hpp"
using Mma = cute::SM120::BLOCKSCALED::SM120_16x8x32_TN_VS<cute::float_e2m1_t, cute::float_e4m3_t, float, cute::float_ue8m0_t, 32>;
__global__ void pieces(uint32_t const* b, uint8_t const* scales, float* out) {
  __shared__ cute::uint128_t shared[32];
  uint32_t a[4];
  float d[4] = {};
  cute::SM100_SU4_DU8x16_x4_LDSM_N::copy(shared[threadIdx.x], a[0], a[1], a[2], a[3]);
  Mma::fma(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[threadIdx.x], b[threadIdx.x + 32], d[0], d[1], d[2], d[3],
           scales[threadIdx.x], scales[threadIdx.x + 32]);
  for (int element = 0; element < 4; ++element) out[4 * threadIdx.x + element] = d[element];
}
"""


@pytest.mark.kernels
def test_the_pieces_compile_to_instructions_of_sm90(sources: Sources, tmp_path: Path, keep: Keep) -> None:
    def compiled() -> Measured:
        source, built = tmp_path / "pieces.cu", tmp_path / "pieces.o"
        source.write_text(PIECES)
        assert compiler.compile_unit(sources.unit, source, built, sources.toolkit, sources.tree).error == ""
        return dict(sass.instructions(sources.toolkit, built, ARCHITECTURE))

    found = keep(inputs_of(sources, measures="instructions of the pieces"), compiled)
    # SM90 has e4m3 for a whole warp by way of float16: two steps of 16 for one of 32.
    assert (sass.number(found, "HMMA.16816.F32"), sass.number(found, "LDS.U16")) == (2, 4)
    assert not any(name.startswith(("QMMA", "OMMA", "LDSM.U4")) for name in found)


@pytest.mark.kernels
def test_the_entry_is_found_by_name_and_takes_what_python_gives_for_every_tile(
    sources: Sources, tmp_path: Path, keep: Keep
) -> None:
    """The library without its kernels: loaded, asked for its names, and called where none of them is needed."""
    found = keep(inputs_of(sources, measures="entry"), lambda: entry(sources, tmp_path))
    called = re.findall(r"GroupGEMMSM120<128, (\d+), 128, (true|false)", found["missing"])
    assert set(called) == {(str(tile.columns), str(tile.swapped).lower()) for tile in TILES}
    assert found["said"] == ["True", "1 no such tile"]


def entry(sources: Sources, folder: Path) -> Measured:
    """The names that the entry's object misses, and what its library says when it is called."""
    built, made = folder / "entry.o", folder / "entry.so"
    assert compiler.compile_unit(sources.unit, FOLDER / "entry.cpp", built, sources.toolkit, sources.tree).error == ""
    missing = subprocess.run(["nm", "-C", "-u", str(built)], capture_output=True, text=True, check=True).stdout
    subprocess.run([*compiler.cxx(), "-shared", "-Wl,-z,lazy", str(built), "-o", str(made)], check=True)
    # In a process of its own, and lazily: what CUDA's runtime and the kernels have is missing, and not asked for.
    code = "import ctypes; from laboratory.sm120_on_sm90 import grouped as ours; "
    code += f"library = ctypes.CDLL({str(made)!r}, mode=1); library.sm120_problem.restype = ctypes.c_char_p; "
    code += "print(library.sm120_asked_bytes() == ctypes.sizeof(ours._Asked)); "
    code += "print(library.sm120_group_gemm(48, 1, ctypes.byref(ours._Asked())), library.sm120_problem().decode())"
    path = os.environ | {"PYTHONPATH": f"{ROOT / 'tools'}:{ROOT / 'kernels'}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=path)
    return {"missing": missing, "said": done.stdout.splitlines()}


@pytest.mark.kernels
def test_a_kernel_that_does_not_fit_sm120_is_refused(sources: Sources, tmp_path: Path, keep: Keep) -> None:
    """It takes 97,280 bytes, and there is one less: refused before any code is made."""
    unit = replace(sources.unit, flags=("-DSM120_SHARED_BYTES=97279", *sources.unit.flags))
    source = sources.of(Tile(32, True), places.root())

    def error() -> Measured:
        said = compiler.compile_unit(unit, source, tmp_path / "built.o", sources.toolkit, sources.tree).error
        assert REFUSED in said
        return {"error": said}

    inputs = inputs_of(sources, measures="too much shared memory", cut=source.read_text())
    assert REFUSED in keep(inputs, error)["error"]


@pytest.mark.kernels
def test_a_tile_that_flashinfer_has_not_is_named(sources: Sources) -> None:
    with pytest.raises(StackError, match="has no tile 128x48"):
        sources.of(Tile(48, False), places.root())


def test_nothing_else_is_emulated() -> None:
    ran = CliRunner().invoke(cli, ["validate", "kernels", "--emulate", "sm90"])
    assert (ran.exit_code, "'sm90' is not 'sm120'" in ran.output) == (2, True)


def test_a_tile_that_is_not_emulated_is_seen() -> None:
    source = "".join(f"INSTANTIATE_GEMM{tile.instantiation} float)\n" for tile in TILES)
    emulation.look_at_tiles(source)
    for other in (Tile(16, False), Tile(256, True)):
        with pytest.raises(StackError, match=f"not emulated: INSTANTIATE_GEMM\\( 128, {other.columns}, "):
            emulation.look_at_tiles(f"{source}INSTANTIATE_GEMM{other.instantiation} float)\n")
