# SPDX-License-Identifier: Apache-2.0
"""The series local-version: which companion packages FlashInfer runs with.

The checks are the upstream's own, and run when it is imported; the companions are folders with the few lines that they ask for.
"""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support

with support.quiet():
    import flashinfer
    from flashinfer.version import __version__ as VERSION

PATCH = "flashinfer/compare-companion-packages-with-the-release.patch"
PROVES = {
    PATCH: [
        "test_a_build_with_a_local_version_runs_with_cubins",
        "test_a_build_with_a_local_version_runs_with_compiled_modules",
    ]
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

RELEASE = VERSION.partition("+")[0]
BUILD = f"{RELEASE}+sm121.g01234567"
OTHER = "0.1.0"
JIT_CACHE = "flashinfer-jit-cache"

Imported = Callable[[str], Any]


@pytest.fixture(name="imported")
def _imported(monkeypatch: pytest.MonkeyPatch) -> Imported:
    """Import `flashinfer.jit.env` as it is in a build with some version."""
    monkeypatch.delenv("FLASHINFER_CUBIN_DIR", raising=False)
    monkeypatch.delenv("FLASHINFER_DISABLE_VERSION_CHECK", raising=False)

    def load(version: str) -> Any:
        monkeypatch.setattr(flashinfer.version, "__version__", version)
        for name in ("flashinfer._local_version", "flashinfer.jit.env", "flashinfer_cubin"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(flashinfer.jit, "env", None)
        return importlib.import_module("flashinfer.jit.env")

    return load


def cubins(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package `flashinfer_cubin`."""
    package = folder / "flashinfer_cubin"
    package.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n\n\ndef get_cubin_dir():\n    return {str(folder)!r}\n")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("own", [RELEASE, BUILD])
def test_a_build_with_a_local_version_runs_with_cubins(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    cubins(tmp_path, RELEASE, monkeypatch)
    assert tmp_path == imported(own).FLASHINFER_CUBIN_DIR


@pytest.mark.parametrize("own", [RELEASE, BUILD])
@pytest.mark.parametrize("companion", [RELEASE, f"{RELEASE}+cu130"])
def test_a_build_with_a_local_version_runs_with_compiled_modules(imported: Imported, own: str, companion: str) -> None:
    imported(own)._check_jit_cache_version(JIT_CACHE, companion)


def test_what_a_build_compiles_is_its_own(imported: Imported) -> None:
    assert [BUILD in imported(own).FLASHINFER_WORKSPACE_DIR.parts for own in (RELEASE, BUILD)] == [False, True]


@pytest.mark.parametrize("own", [RELEASE, BUILD])
def test_companions_of_another_release_are_refused(
    imported: Imported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    env = imported(own)
    for companion in (f"{OTHER}+cu130", f"{RELEASE}0"):  # the last one only begins alike
        with pytest.raises(RuntimeError, match="does not match"):
            env._check_jit_cache_version(JIT_CACHE, companion)
    cubins(tmp_path, OTHER, monkeypatch)
    try:
        assert tmp_path != imported(own).FLASHINFER_CUBIN_DIR  # FlashInfer 0.7.2 does without it
    except RuntimeError as refused:
        assert "does not match" in str(refused)


def test_a_tree_without_a_version_is_not_checked(imported: Imported) -> None:
    imported("0.0.0+unknown")._check_jit_cache_version(JIT_CACHE, OTHER)
