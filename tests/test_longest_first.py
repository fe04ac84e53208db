# SPDX-License-Identifier: Apache-2.0
"""Kernel tests and proofs start in the order of their seconds in earlier runs, in real runs of pytest with and without workers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.store import results
from tests import longest_first
from tests.keeping import ROOT

CONFTEST = """
import pytest
from tests.longest_first import LongestFirst


def pytest_configure(config):
    config.addinivalue_line("markers", "kernels: of the test")
    config.addinivalue_line("markers", "proofs: of the test")
    config.pluginmanager.register(LongestFirst(config))
"""
TESTS = """
import time

import pytest


def test_other():
    pass


@pytest.mark.kernels
@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_kernel(name):
    time.sleep(0.2)


@pytest.mark.proofs
def test_kept(record_property):
    record_property("kept", True)


@pytest.mark.kernels
def test_failed():
    assert not time.sleep(0.2)
    raise OSError
"""
KERNELS = [f"test_all.py::{name}" for name in ("test_kernel[first]", "test_kernel[second]", "test_kernel[third]")]
KEPT, FAILED, OTHER = (f"test_all.py::test_{name}" for name in ("kept", "failed", "other"))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> results.Results:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/conftest.py").write_text(CONFTEST)
    (tmp_path / "tests/test_all.py").write_text(TESTS)
    monkeypatch.setenv("STACK_CACHE", str(tmp_path / "cache"))
    return results.results(tmp_path / "cache", "seconds")


def order(tmp_path: Path, *arguments: str) -> list[str]:
    """The tests of a run, as they were started."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", ".", *arguments]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tools")))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | {"PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "tests", env=environment, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # one of them fails
    words = [word for line in done.stdout.partition("= FAILURES")[0].splitlines() for word in line.split()]
    return list(dict.fromkeys(word for word in words if word.startswith("test_all.py::")))


def test_what_took_longest_starts_first_and_what_was_never_measured_before_it(store: results.Results, tmp_path: Path) -> None:
    store.put(longest_first._NAME, {KERNELS[0]: 1.0, KERNELS[1]: 30.0, KERNELS[2]: 2.0, KEPT: 40.0})
    assert order(tmp_path) == [FAILED, KEPT, KERNELS[1], KERNELS[2], KERNELS[0], OTHER]


@pytest.mark.parametrize("arguments", [(), ("-n", "2", "--dist", "load", "--maxschedchunk", "1")], ids=["alone", "workers"])
def test_seconds_are_those_of_whole_passed_runs(store: results.Results, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    store.put(longest_first._NAME, {KERNELS[1]: 30.0, KEPT: 40.0})
    assert set(order(tmp_path, *arguments)) == {*KERNELS, KEPT, FAILED, OTHER}
    found = store.get(longest_first._NAME)
    assert found is not None
    assert set(found) == {*KERNELS, KEPT}
    assert found.pop(KEPT) == 40.0
    assert all(0.2 <= seconds < 30.0 for seconds in found.values())
