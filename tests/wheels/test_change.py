# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.wheels.change import Kind, classify


@pytest.mark.parametrize(
    ("upstream", "paths", "kind"),
    [
        ("vllm", [], Kind.NOTHING),
        ("vllm", ["vllm/config/kernel.py", "docs/a.md"], Kind.PYTHON),
        ("vllm", ["vllm/a.py", "csrc/a.cu"], Kind.COMPILED),
        ("vllm", ["cmake/utils.cmake"], Kind.COMPILED),
        ("vllm", ["vllm/_custom_ops.py"], Kind.COMPILED),
        ("vllm", ["vllm/csrc/a.py"], Kind.PYTHON),
        ("flashinfer", ["flashinfer/jit/core.py"], Kind.PYTHON),
        ("flashinfer", ["include/flashinfer/a.cuh", "flashinfer/a.py"], Kind.JIT),
        ("flashinfer", ["3rdparty/cutlass/include/cutlass/a.h"], Kind.JIT),
        ("other", ["other/a.py"], Kind.PYTHON),
        ("other", ["src/a.cpp"], Kind.COMPILED),
        ("other", ["pyproject.toml"], Kind.COMPILED),
    ],
)
def test_kind(upstream: str, paths: list[str], kind: Kind) -> None:
    assert classify(upstream, paths).kind is kind


def test_what_decides_is_named() -> None:
    found = classify("vllm", ["vllm/a.py", "setup.py", "csrc/b.cu", "csrc/a.cu"])
    assert (found.because, found.odd) == (("csrc/a.cu", "csrc/b.cu"), ("setup.py",))
