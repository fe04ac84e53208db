# SPDX-License-Identifier: Apache-2.0
"""A cross compiler in CXX: nvcc takes it for the host's part, and what it made is tagged for its processor."""

import platform
from pathlib import Path

import pytest

from stack.proof.compiling import compiler
from stack.proof.compiling.listing import Unit
from stack.proof.compiling.toolkit import Toolkit
from stack.wheels import aot_modules


@pytest.fixture
def cross(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler for another processor than this machine's."""
    file = tmp_path / "other-g++"
    file.write_text("#!/bin/sh\necho s390x-linux-gnu\n")
    file.chmod(0o755)
    monkeypatch.setenv("CXX", str(file))
    return file


def unit(source: str) -> Unit:
    return Unit("one", Path(source), ())


def test_nvcc_takes_it_with_this_machines_headers(cross: Path, tmp_path: Path) -> None:
    toolkit = Toolkit(tmp_path, tmp_path / "nvcc", "13.0", tmp_path / "cuobjdump", tmp_path / "headers")
    assert compiler.processor() == "s390x"
    made = [str(tmp_path / "nvcc"), f"-ccbin={cross}", "-isystem"]
    assert compiler._program(unit("one.cu"), toolkit) == [*made, str(tmp_path / "include")]
    own = tmp_path / "targets" / f"{platform.machine()}-linux/include"
    own.mkdir(parents=True)
    assert compiler._program(unit("one.cu"), toolkit) == [*made, str(own)]
    assert compiler._program(unit("one.cpp"), toolkit) == [str(cross)]


def test_the_wheel_is_for_its_processor(cross: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert aot_modules.tag() == "py3-none-linux_s390x"
    monkeypatch.delenv("CXX")
    assert aot_modules.tag() == f"py3-none-linux_{platform.machine()}"
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert compiler.processor() == platform.machine()
