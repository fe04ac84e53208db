# SPDX-License-Identifier: Apache-2.0
"""The series local-version: which companion packages FlashInfer runs with.

The checks are the upstream's own, and run when it is imported; the companions are folders with the few lines that they ask for.
"""

import sys
from pathlib import Path

import pytest
import support

with support.quiet():
    from flashinfer.jit import env
    from flashinfer.version import __version__ as VERSION

PATCH = "flashinfer/compare-public-versions-with-companion-packages.patch"
PROVES = {
    PATCH: [
        "test_a_build_with_a_local_version_runs_with_cubins",
        "test_a_build_with_a_local_version_runs_with_compiled_modules",
    ]
}
UPSTREAM_TESTS = ["tests/test_env.py"]
UPSTREAM_ARGS = ["-p", "support"]

RELEASE = VERSION.partition("+")[0]
OTHER = "0.1.0"


def cubins(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package `flashinfer_cubin`."""
    package = folder / "flashinfer_cubin"
    package.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n\n\ndef get_cubin_dir():\n    return {str(folder)!r}\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delenv("FLASHINFER_CUBIN_DIR", raising=False)
    monkeypatch.delenv("FLASHINFER_DISABLE_VERSION_CHECK", raising=False)
    monkeypatch.delitem(sys.modules, "flashinfer_cubin", raising=False)


@pytest.mark.parametrize("companion", [RELEASE, f"{RELEASE}+cu130"])
def test_a_build_with_a_local_version_runs_with_cubins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, companion: str) -> None:
    cubins(tmp_path, companion, monkeypatch)
    monkeypatch.setattr(env, "flashinfer_version", f"{RELEASE}+sm121.g01234567")
    assert env._get_cubin_dir() == tmp_path


@pytest.mark.parametrize("own", [RELEASE, f"{RELEASE}+sm121.g01234567"])
@pytest.mark.parametrize("companion", [RELEASE, f"{RELEASE}+cu130"])
def test_a_build_with_a_local_version_runs_with_compiled_modules(
    monkeypatch: pytest.MonkeyPatch, own: str, companion: str
) -> None:
    monkeypatch.delenv("FLASHINFER_DISABLE_VERSION_CHECK", raising=False)
    monkeypatch.setattr(env, "flashinfer_version", own)
    env._check_jit_cache_version("flashinfer-jit-cache", companion)


@pytest.mark.parametrize("own", [RELEASE, f"{RELEASE}+sm121.g01234567"])
def test_companions_of_another_release_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    cubins(tmp_path, OTHER, monkeypatch)
    monkeypatch.setattr(env, "flashinfer_version", own)
    with pytest.raises(RuntimeError, match=f"{OTHER}.*does not match"):
        env._get_cubin_dir()
    with pytest.raises(RuntimeError, match="does not match"):
        env._check_jit_cache_version("flashinfer-jit-cache", f"{OTHER}+cu130")
    with pytest.raises(RuntimeError, match="does not match"):  # a longer version that only begins alike
        env._check_jit_cache_version("flashinfer-jit-cache", f"{RELEASE}0")
