# SPDX-License-Identifier: Apache-2.0
"""The narrow tiles of the example's mxfp4-moe: what can be known of a kernel's layouts without the device, by CUTLASS's own types."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import trees
from stack.proof.compiling import compiler, toolkit
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache
from tests import keeping
from tests.keeping import Keep

ROOT = Path(__file__).parents[2] / "examples/fork-v0.17.1"
SOURCE = Path(__file__).with_name("narrow_tiles.cpp")
HEADER = SOURCE.with_suffix(".hpp")
SHARED_MEMORY = 99 * 1024
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
def _found(tmp_path: Path, keep: Keep) -> Mapping[tuple[str, int], Found]:
    """By operands (`swapped`: weights are A) and columns of the tile."""
    home = cache.root()
    with Stores(load(ROOT), Place(home)) as stores:
        objects = stores.objects("flashinfer")
        tree = trees.folder(objects, objects.tree_of(stores.tip("flashinfer")), home)
    tools = toolkit.find(home)
    lines = keep(
        {"tree": tree.name, "source": keeping.code(SOURCE, HEADER), **keeping.cuda(tools)},
        lambda: {"lines": said_of_tiles(tree, tools, tmp_path / "tiles")},
    )["lines"]
    rows = [line.split() for line in lines]
    return {(operands, int(n)): Found(*map(int, numbers)) for operands, n, *numbers in rows}


def said_of_tiles(tree: Path, tools: Toolkit, program: Path) -> list[str]:
    """Compile the program for the host, which takes some 15 s, and run it."""
    cuda = tools.home / "include"
    include = [f"-I{folder}" for folder in (tree / "3rdparty/cutlass/include", cuda, cuda / "cccl")]
    # CUTLASS's device code names what only nvcc knows; it is not called.
    command = [*compiler.cxx(), "-std=c++17", "-fpermissive", "-w", "-O0", *include]
    subprocess.run([*command, str(SOURCE), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("columns", [32, 64])
@pytest.mark.parametrize("operands", ["swapped", "straight"])
def test_a_thread_of_a_narrow_tile_has_its_own_columns_scale_factors(
    found: Mapping[tuple[str, int], Found], operands: str, columns: int
) -> None:
    one = found[operands, columns]
    assert one.wrong == 0
    assert one.of_first > 0  # the negative control: it does matter which tile it is
    assert one.stages >= 2
    assert one.shared <= SHARED_MEMORY
