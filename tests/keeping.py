# SPDX-License-Identifier: Apache-2.0
"""Keep what slow tests measure, under the hash of everything that it depends on. `STACK_AGAIN=1` measures everything again.

A test asserts on what is kept in every run: that it passed is not kept.
"""

import os
import platform
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from stack.proof import sources
from stack.proof.compiling import compiler
from stack.proof.compiling.toolkit import Toolkit
from stack.store import cache as places
from stack.store import results

ROOT = Path(__file__).parents[1]
KEPT = "kept"
"""The property of a test's report that says that nothing was measured."""
_VARIABLES = (
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "GLIBC_TUNABLES",
    "LIBRARY_PATH",
    "NPY_DISABLE_CPU_FEATURES",
    "NVCC_APPEND_FLAGS",
    "NVCC_PREPEND_FLAGS",
    "OPENBLAS_CORETYPE",
)
"""Environment variables that change what compilers and numpy compute."""
_PROCESSOR = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
"""Fields of /proc/cpuinfo by which numpy and OpenBLAS choose their code; their sums differ in the last bits."""
_RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
"""The test run; its processes share it."""

Measured = dict[str, Any]
Keep = Callable[[Mapping[str, str], Callable[[], Measured]], Measured]


def code(*files: Path) -> str:
    """Hash files and, of those in Python, everything of this repository that they import."""
    return sources.digest(sources.closure(files, (ROOT / "tools", ROOT / "kernels", ROOT)), ROOT)


@cache
def environment() -> Mapping[str, str]:
    """Name the inputs of every measurement: Python, numpy, the C++ compiler and the processor."""
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()]
    except OSError:
        lines = []
    return {
        "python": sys.version,
        "numpy": version("numpy"),
        "ml_dtypes": version("ml_dtypes"),
        "libc": " ".join(platform.libc_ver()),
        "architecture": platform.machine(),
        "processor": repr([(name.strip(), what.strip()) for name, _, what in lines if name.strip() in _PROCESSOR]),
        "variables": repr([(name, os.environ.get(name)) for name in _VARIABLES]),
        "compiler": _version(*compiler.cxx()),
    }


@cache
def cuda(toolkit: Toolkit) -> Mapping[str, str]:
    """Name the further inputs of a measurement by nvcc: the versions of its programs and the sizes of its headers."""
    include = toolkit.home / "include"
    files = [(str(one.relative_to(include)), one.stat().st_size) for one in sorted(include.rglob("*")) if one.is_file()]
    return {"nvcc": _version(str(toolkit.nvcc)), "cuobjdump": _version(str(toolkit.cuobjdump)), "headers": repr(files)}


def kept(kind: str, inputs: Mapping[str, str], measure: Callable[[], Measured]) -> tuple[Measured, bool]:
    """Return what `measure` measures with these inputs, and whether it was kept. Nothing is kept if it raises."""
    store, name = results.results(places.root(), kind), results.key(inputs)
    found = store.get(name)
    if found is not None and (not results.again() or found["run"] == _RUN):
        return found["measured"], True
    measured = measure()
    store.put(name, {"run": _RUN, "measured": measured})
    return measured, False


@pytest.fixture
def keep(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None], tmp_path_factory: pytest.TempPathFactory
) -> Keep:
    """Keep what a test measures.

    The key is its inputs with `environment` and, unless `inputs` has another `code`, the test's module with all its imports.
    """

    def of_test(inputs: Mapping[str, str], measure: Callable[[], Measured]) -> Measured:
        mine = {"code": code(request.path)} if "code" not in inputs else {}
        whole = {**environment(), **mine, **inputs}
        with _alone(tmp_path_factory, results.key(whole)):
            measured, found = kept("kernels", whole, measure)
        if found:
            record_property(KEPT, True)
        return measured

    return of_test


@contextmanager
def _alone(factory: pytest.TempPathFactory, name: str) -> Iterator[None]:
    """Hold a lock among the processes of this run: tests that share a measurement wait for the first of them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with places.lock(factory.getbasetemp().parent / name):
        yield


@cache
def _version(*command: str) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
