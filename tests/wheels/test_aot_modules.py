# SPDX-License-Identifier: Apache-2.0
"""Modules compiled ahead of time, of a small upstream with the parts of FlashInfer's JIT that are asked."""

import importlib.util
import json
import logging
import shutil
import subprocess
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stack.cli import cli
from stack.proof.compiling import toolkit
from stack.store import cache as places
from stack.vllm_project import project
from stack.wheels import aot_modules, metadata

from ..proof.compiling import small
from . import editing

Build = Callable[..., Result]


@pytest.fixture(autouse=True)
def home() -> None:
    """The user's own pip and cache, in place of none: the compiler and the build tools come from there."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.build(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty(tmp_path_factory.mktemp("cache"))


def empty(folder: Path) -> Path:
    """A cache that has only compilers and build tools: those of the user's."""
    toolkit.find(places.root())
    for name in ("compilers", "environments"):
        (places.root() / name).mkdir(exist_ok=True)
        (folder / name).symlink_to(places.root() / name)
    return folder


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "root"))


@pytest.fixture
def build(root: Path, cache: Path) -> Build:
    """Run `stack build wheels flashinfer ARGS` on the small stack."""

    def run(*args: object, cache: Path = cache) -> Result:
        common = ["--root", str(root), "--cache", str(cache), "build", "wheels", "flashinfer", "--source", "git"]
        return CliRunner().invoke(cli, [*common, "--python", sys.executable, "--json", *map(str, args)])

    return run


def made(ran: Result) -> tuple[Path, bool]:
    """The wheel of modules, and whether it was there before."""
    assert ran.exit_code == 0, ran.exception
    [one] = [one for one in json.loads(ran.stdout)["wheels"] if "jit_cache" in one["file"]]
    return Path(one["file"]), one["reused"]


def needed(library: bytes, folder: Path) -> set[str]:
    """The libraries that a shared object asks for."""
    place = folder / "library.so"
    place.write_bytes(library)
    said = subprocess.run(["readelf", "--dynamic", "--wide", str(place)], capture_output=True, text=True, check=True).stdout
    return {line.split("[")[1].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line}


@pytest.mark.slow
@pytest.mark.images
def test_modules_become_a_wheel_that_says_what_it_is_of(build: Build, cache: Path, tmp_path: Path) -> None:
    path, reused = made(build("--aot", "copy", "--out", tmp_path / "one"))
    version = path.name.split("-")[1]
    assert not reused
    assert version.startswith("1.0+stack.g") and version.endswith(".src")
    assert path.name.startswith(f"flashinfer_jit_cache-{version}-py3-none-linux_")
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    inside = f"flashinfer_jit_cache-{version}.dist-info"
    assert metadata.fields(content[f"{inside}/METADATA"])["Requires-Dist"] == f"flashinfer-python=={version}"
    about = json.loads(content["flashinfer_jit_cache/about.json"])
    assert about == {"version": version, "provider": "sm121a", "architectures": ["sm121a"], "modules": ["copy"]}
    library = content["flashinfer_jit_cache/jit_cache/copy/copy.so"]
    assert {"libcudart.so.13", "libcuda.so.1"} <= needed(library, tmp_path)
    program = toolkit.find(places.root()).cuobjdump
    listed = subprocess.run([str(program), "-lelf", str(tmp_path / "library.so")], capture_output=True, text=True, check=True)
    assert "sm_121a" in listed.stdout
    said = json.loads(content[f"{inside}/stack_stack.json"])
    assert said["edited"] == ["copy is compiled for sm_121a"]
    assert {"nvcc", "g++"} <= said["tools"].keys()
    assert CliRunner().invoke(cli, ["wheel", "inspect", str(path)]).exit_code == 0
    again, reused = made(build("--aot", "copy", "--out", tmp_path / "two"))
    assert reused and again.read_bytes() == path.read_bytes()
    before = {one: one.stat().st_mtime_ns for one in cache.glob("wheels/building/*/*.o")}
    both, reused = made(build("--aot", "co*", "--aot", "other", "--out", tmp_path / "two"))
    after = {one: one.stat().st_mtime_ns for one in cache.glob("wheels/building/*/*.o")}
    assert not reused and both.name == path.name
    assert len(before) == 2 and len(after) == 3 and before.items() <= after.items()


@pytest.mark.slow
@pytest.mark.images
def test_the_same_bytes_from_another_folder(build: Build, tmp_path: Path) -> None:
    """One of its sources says in the code where it is."""
    one, _ = made(build("--aot", "copy", "--out", tmp_path / "one"))
    (tmp_path / "elsewhere").mkdir()
    other, reused = made(build("--aot", "copy", "--out", tmp_path / "two", cache=empty(tmp_path / "elsewhere")))
    assert not reused
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert b"source/csrc/copy.cpp" in archive.read("flashinfer_jit_cache/jit_cache/copy/copy.so")


@pytest.mark.slow
@pytest.mark.images
def test_modules_that_are_made_at_run_time_only(build: Build, tmp_path: Path) -> None:
    path, _ = made(build("--aot", "flashinfer.jit.copying.Wrapper('one')", "--out", tmp_path))
    with zipfile.ZipFile(path) as archive:
        assert "flashinfer_jit_cache/jit_cache/one/one.so" in archive.namelist()
    refused = build("--aot", "flashinfer.jit.copying.Nothing()", "--out", tmp_path).exception
    assert "--aot flashinfer.jit.copying.Nothing() makes no module (AttributeError: " in str(refused)


@pytest.mark.slow
@pytest.mark.images
def test_what_cannot_be_compiled_ahead(build: Build, root: Path, cache: Path, tmp_path: Path) -> None:
    assert "has no module cpy for sm_121a: there are copy and others" in str(
        build("--aot", "cpy", "--out", tmp_path / "out").exception
    )
    assert "has no module cpy" in str(build("--aot", "cpy", "--plan").exception)
    bare = ["--root", str(root), "--cache", str(cache), "build", "wheels", "flashinfer", "--source", "git", "--aot", "copy"]
    unproved = CliRunner().invoke(cli, [*bare, "--out", str(tmp_path / "out")]).exception
    assert "no series names a proof: name an interpreter: --python FILE" in str(unproved)
    assert not (tmp_path / "out").exists()
    [patch] = root.glob("stacks/copies/flashinfer/name-it-twice.patch")
    editing.edit(patch, "+namespace upstream = up;", "+namespace upstream = down;")
    refused = str(build("--aot", "copy", "--out", tmp_path).exception)
    assert "copy/copy_kernels.cu does not compile: " in refused and "must be a namespace name" in refused
    module = aot_modules.Module("odd", (), ("-shared", "-lodd"))
    with pytest.raises(Exception, match="odd links against odd: leave it to FlashInfer's JIT"):
        aot_modules._linked(module, [], toolkit.find(places.root()), "FlashInfer")


@pytest.mark.slow
@pytest.mark.images
def test_no_modules_beside_an_overlay(build: Build, root: Path) -> None:
    """With a change of Python only, which an overlay would do for."""
    series = root / "stacks/copies"
    text = (series / "series.toml").read_text()
    (series / "series.toml").write_text(text[: text.index("[[patch]]", text.index("[[patch]]") + 1)])
    for path in (*series.glob("cutlass/*.patch"), *series.glob("flashinfer/[!l]*.patch")):
        path.unlink()
    refused = build("--aot", "copy", "--mode", "overlay", "--plan").exception
    assert "--aot needs a FlashInfer that is built from source: leave out --mode overlay" in str(refused)


def test_the_package_is_for_its_own_build_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for path, data in aot_modules.files(
        project.units(lambda _: b""), {"copy": b"ELF"}, aot_modules.Version("1.0+stack.g1")
    ).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    spec = importlib.util.spec_from_file_location("flashinfer_jit_cache", tmp_path / "flashinfer_jit_cache/__init__.py")
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    build = types.ModuleType("flashinfer.version")
    monkeypatch.setitem(sys.modules, "flashinfer", types.ModuleType("flashinfer"))
    monkeypatch.setitem(sys.modules, "flashinfer.version", build)
    monkeypatch.setattr(build, "__version__", "1.0+stack.g1", raising=False)
    [provider] = package.get_jit_cache_providers()
    assert (provider.jit_cache_dir / "copy/copy.so").read_bytes() == b"ELF"
    assert (provider.version, provider.cuda_architectures, provider.modules) == ("1.0+stack.g1", {"sm121a"}, {"copy"})
    assert Path(package.get_jit_cache_dir()) == provider.jit_cache_dir
    monkeypatch.setattr(build, "__version__", "1.0+stack.g2")
    with caplog.at_level(logging.WARNING):
        assert package.get_jit_cache_providers() == ()
    assert not Path(package.get_jit_cache_dir()).exists()
    assert "belongs to FlashInfer 1.0+stack.g1, and is not used by 1.0+stack.g2" in caplog.text
