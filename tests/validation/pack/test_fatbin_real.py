# SPDX-License-Identifier: Apache-2.0
"""What nvcc writes is read as NVIDIA's own cuobjdump reads it, and what stays is still good to it."""

import re
import subprocess
from pathlib import Path

import pytest

from stack.proof.compiling import toolkit
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places
from stack.validation.pack import fatbin
from stack.validation.pack.fatbin import ImageKind

pytestmark = [pytest.mark.slow, pytest.mark.kernels]

KERNEL = "__global__ void twice(float* values) { values[threadIdx.x] *= 2; }\n"
TARGETS = ("arch=compute_80,code=[compute_80,sm_80]", "arch=compute_90a,code=sm_90a", "arch=compute_120f,code=sm_120f")


@pytest.fixture(name="tools", scope="module")
def _tools() -> Toolkit:
    return toolkit.find(places.root())


@pytest.fixture(name="built", scope="module")
def _built(tools: Toolkit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fat")
    (folder / "twice.cu").write_text(KERNEL)
    command = [str(tools.nvcc), "-c", "twice.cu", "-o", "twice.o", *(f"-gencode={one}" for one in TARGETS)]
    subprocess.run(command, cwd=folder, env=tools.environment, check=True)
    return folder / "twice.o"


def said(tools: Toolkit, *arguments: str | Path) -> str:
    return subprocess.run([tools.cuobjdump, *arguments], capture_output=True, text=True, check=True).stdout


def test_the_images_are_those_that_cuobjdump_lists(tools: Toolkit, built: Path) -> None:
    found = fatbin.images(built.read_bytes(), built.name)
    listed = re.findall(r"\.sm_(\d+)(a?)\.cubin", said(tools, "--list-elf", built))  # it names no family
    cubins = [one for one in found if one.kind is ImageKind.CUBIN]
    assert sorted((str(one.gpu), "a" if one.specific else "") for one in cubins) == sorted(listed)
    assert {(one.gpu, one.specific, one.family) for one in cubins} == {
        (80, False, False),
        (90, True, False),
        (120, False, True),
    }
    assert [one.gpu for one in found if one.kind is ImageKind.PTX] == [80]
    assert re.findall(r"\.sm_(\d+)\.ptx", said(tools, "--list-ptx", built)) == ["80"]


def test_what_stays_is_machine_code_as_before(tools: Toolkit, built: Path, tmp_path: Path) -> None:
    thin = tmp_path / "thin.o"
    thin.write_bytes(fatbin.thin(built.read_bytes(), 90, built.name).data)
    before, after = (said(tools, "-sass", "-arch", "sm_90a", one) for one in (built, thin))
    assert "FMUL" in before or "FADD" in before
    assert after == before
