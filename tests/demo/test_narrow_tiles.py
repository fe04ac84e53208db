# SPDX-License-Identifier: Apache-2.0
"""The narrow tiles of the example's mxfp4-moe: what can be known of a kernel's layouts without the device, by CUTLASS's own types."""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from stack.carry.bases import Place, Stores
from stack.model.stack import load
from stack.proof import trees
from stack.proof.compiling import toolkit
from stack.store import cache

ROOT = Path(__file__).parents[2] / "examples/fork-v0.17.1"
SHARED_MEMORY = 99 * 1024
"""Bytes that one block may have on SM120 and SM121."""


@dataclass(frozen=True, slots=True)
class Found:
    """Scale factors that are wrong in registers, and that would be with the first tile's; the mainloop's stages; bytes shared."""

    wrong: int
    of_first: int
    stages: int
    shared: int


@pytest.fixture(name="found", scope="module")
def _found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, int], Found]:
    """By operands (`swapped`: weights are A) and columns of the tile. Compiled for the host: some 15 s."""
    program = tmp_path_factory.mktemp("narrow") / "tiles"
    home = cache.root()
    with Stores(load(ROOT), Place(home)) as stores:
        objects = stores.objects("flashinfer")
        tree = trees.folder(objects, objects.tree_of(stores.tip("flashinfer")), home)
    cuda = toolkit.find(home).home / "include"
    include = [f"-I{folder}" for folder in (tree / "3rdparty/cutlass/include", cuda, cuda / "cccl")]
    # CUTLASS's device code names what only nvcc knows; it is not called.
    command = ["g++", "-std=c++17", "-fpermissive", "-w", "-O0", *include, str(Path(__file__).with_name("narrow_tiles.cpp"))]
    subprocess.run([*command, "-o", str(program)], check=True)
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {(operands, int(n)): Found(*map(int, numbers)) for operands, n, *numbers in rows}


@pytest.mark.slow
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
