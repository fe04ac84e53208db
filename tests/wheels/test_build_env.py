# SPDX-License-Identifier: Apache-2.0
"""What a build gets of the user's environment."""

from pathlib import Path

import pytest

from stack.vllm_project import project
from stack.wheels import build_env

RULES = project.wheel("vllm")

SHELL = {
    "PATH": "/bin",
    "CXXFLAGS": "-O1",
    "CMAKE_ARGS": "-DA=https://name:secret@example.org/a -DB=1",
    "VLLM_CUTLASS_SRC_DIR": "/cutlass",
    "VLLM_API_KEY": "secret",
    "VLLM_VERSION_OVERRIDE": "1.0",
    "CUDA_VISIBLE_DEVICES": "0",
    "NVCC_THREADS": "4",
    "MAX_JOBS": "3",
    "PYTHONPATH": "/mine",
    "VLLM_USE_PRECOMPILED": "1",
    "VLLM_PRECOMPILED_WHEEL_LOCATION": "/a.whl",
}


def test_what_is_passed_and_what_is_not() -> None:
    assert SHELL.keys() - build_env.passed(SHELL, RULES).keys() == {"PYTHONPATH", *build_env.dropped(SHELL, RULES)}
    assert build_env.dropped(SHELL, RULES) == ("VLLM_PRECOMPILED_WHEEL_LOCATION", "VLLM_USE_PRECOMPILED")


def test_what_decides_is_named_without_secrets() -> None:
    found = build_env.deciding(SHELL, RULES)
    assert found.keys() == {"CXXFLAGS", "CMAKE_ARGS", "VLLM_CUTLASS_SRC_DIR"}
    assert "secret" not in found["CMAKE_ARGS"] and found["CMAKE_ARGS"].endswith(" -DB=1")


@pytest.mark.parametrize(
    "name", ["CMAKE_BUILD_TYPE", "CXX", "CC", "LDFLAGS", "CUDA_HOME", "NVCC_PREPEND_FLAGS", "FETCHCONTENT_SOURCE_DIR_ONEDNN"]
)
def test_each_decides(name: str) -> None:
    assert build_env.deciding({name: "x"}, RULES) == {name: "x"}


def test_a_file_in_a_named_folder_decides_and_a_look_at_its_history_does_not(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.h").write_text("1")
    shell = {"TILES_SRC_DIR": str(tmp_path), "HOME": str(tmp_path)}
    before = build_env.contents(shell)
    (tmp_path / ".git/index").write_text("seen")
    assert build_env.contents(shell) == before
    (tmp_path / "a.h").write_text("12")
    assert build_env.contents(shell) != before
