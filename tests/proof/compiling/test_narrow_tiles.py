# SPDX-License-Identifier: Apache-2.0
"""The tiles of 8 and 16 columns that mxfp4-moe gives CUTLASS: what can be known of a kernel's layouts without the device."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import trees
from stack.proof.compiling import compiler, layers, toolkit
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache
from tests import keeping
from tests.keeping import Keep

ROOT = Path(__file__).parents[3]
SOURCE = Path(__file__).with_name("narrow_tiles.cpp")
HEADER = SOURCE.with_suffix(".hpp")
SHARED_MEMORY = 101_376
"""Bytes that one block may have on SM120 and SM121."""

pytestmark = pytest.mark.kernels


@dataclass(frozen=True, slots=True)
class Found:
    """Scale factors that are wrong in registers, and that would be with the first tile's; the mainloop's stages; bytes shared."""

    wrong: int
    of_first: int
    stages: int
    shared: int


@pytest.fixture(name="found")
def _found(tmp_path: Path, keep: Keep) -> Mapping[int, Found]:
    """By columns of the tile."""
    home = cache.root()
    with Stores(load(ROOT), Place(home)) as stores:
        carried = layers.of(stores, stores.stack.pins.get("flashinfer"))
        tree = trees.folder(stores.objects("flashinfer"), carried.tip, home)
    tools = toolkit.find(home)
    lines = keep(
        {"tree": tree.name, "source": keeping.code(SOURCE, HEADER), **keeping.cuda(tools)},
        lambda: {"lines": said_of_tiles(tree, tools, tmp_path / "tiles")},
    )["lines"]
    return {columns: Found(*numbers) for columns, *numbers in (map(int, line.split()) for line in lines)}


def said_of_tiles(tree: Path, tools: Toolkit, program: Path) -> list[str]:
    """Compile the program for the host, which takes some 20 s, and run it."""
    cuda = tools.home / "include"
    include = [f"-I{folder}" for folder in (tree / "3rdparty/cutlass/include", cuda, cuda / "cccl")]
    # CUTLASS's device code names what only nvcc knows; it is not called.
    command = [*compiler.cxx(), "-std=c++17", "-fpermissive", "-w", "-O0", *include]
    subprocess.run([*command, str(SOURCE), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("columns", [8, 16, 32])
def test_a_thread_of_a_narrow_tile_has_its_own_tokens_scale_factors(found: Mapping[int, Found], columns: int) -> None:
    one = found[columns]
    assert one.wrong == 0
    assert one.of_first > 0  # the negative control: it does matter which tile it is
    assert one.shared <= SHARED_MEMORY


def test_fewer_columns_leave_no_less_room_for_weights(found: Mapping[int, Found]) -> None:
    assert found[8].stages > found[32].stages
    assert found[16].stages >= found[32].stages
    assert found[16].shared < found[32].shared
