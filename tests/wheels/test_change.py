# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.wheels.change import ChangeKind, classify


@pytest.mark.parametrize(
    ("upstream", "paths", "kind"),
    [
        ("vllm", [], ChangeKind.NOTHING),
        ("vllm", ["vllm/config/kernel.py", "docs/a.md"], ChangeKind.PYTHON),
        ("vllm", ["vllm/a.py", "csrc/a.cu"], ChangeKind.COMPILED),
        ("vllm", ["cmake/utils.cmake"], ChangeKind.COMPILED),
        ("vllm", ["vllm/_custom_ops.py"], ChangeKind.COMPILED),
        ("vllm", ["vllm/csrc/a.py"], ChangeKind.PYTHON),
        ("flashinfer", ["flashinfer/jit/core.py"], ChangeKind.PYTHON),
        ("flashinfer", ["include/flashinfer/a.cuh", "flashinfer/a.py"], ChangeKind.JIT),
        ("flashinfer", ["3rdparty/cutlass/include/cutlass/a.h"], ChangeKind.JIT),
        ("other", ["other/a.py"], ChangeKind.PYTHON),
        ("other", ["src/a.cpp"], ChangeKind.COMPILED),
        ("other", ["pyproject.toml"], ChangeKind.COMPILED),
    ],
)
def test_kind(upstream: str, paths: list[str], kind: ChangeKind) -> None:
    assert classify(upstream, paths).kind is kind


def test_what_decides_is_named() -> None:
    found = classify("vllm", ["vllm/a.py", "setup.py", "csrc/b.cu", "csrc/a.cu"])
    assert (found.because, found.odd) == (("csrc/a.cu", "csrc/b.cu"), ("setup.py",))
