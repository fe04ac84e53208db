# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's cache, built by a real ninja from sources that then change."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stack.doctor.jit import Module, ModuleState, modules

VERSION = "0.7.0.post1"
# As FlashInfer writes it (jit/cpp_ext.py), with a compiler that copies.
BUILD = """\
rule compile
  command = cp $in $out && echo "$out: {header}" > $out.d
  depfile = $out.d
  deps = gcc
build {folder}/one.o: compile {source}
rule link
  command = cp $in $out
build {folder}/{name}.so: link {folder}/one.o
default {folder}/{name}.so
"""
OLD, NEW = 1_000_000_000, 2_000_000_000


class Cache:
    """A home with FlashInfer's cache in it, and an environment with its sources."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.site = home / "site"
        self.data = self.site / "flashinfer/data"
        self.data.mkdir(parents=True)
        self.record = self.site / f"flashinfer_python-{VERSION}.dist-info"
        self.record.mkdir()
        os.utime(self.record, (OLD, OLD))
        for name in ("one.cu", "one.h"):
            (self.data / name).write_text("old")
            os.utime(self.data / name, (OLD, OLD))

    def build(self, name: str, version: str = VERSION) -> Path:
        folder = self.home / ".cache/flashinfer" / version / "121a/cached_ops" / name
        folder.mkdir(parents=True)
        text = BUILD.format(folder=folder, name=name, source=self.data / "one.cu", header=self.data / "one.h")
        (folder / "build.ninja").write_text(text)
        ninja = Path(sys.executable).parent / "ninja"
        subprocess.run([ninja, "-C", folder], check=True, capture_output=True)
        return folder

    def look(self) -> dict[str, Module]:
        found = modules({"HOME": str(self.home)}, Path(sys.executable), self.site)
        return {one.name: one for one in found}


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def test_nothing_is_there(cache: Cache) -> None:
    assert cache.look() == {}


def test_as_it_is_installed(cache: Cache) -> None:
    folder = cache.build("fused_moe_120")
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    found = cache.look()["fused_moe_120"]
    assert (found.state, found.version, found.architectures, found.folder) == (ModuleState.WHOLE, VERSION, "121a", folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("name", ["one.cu", "one.h"])
def test_only_what_changed_is_named(cache: Cache, name: str) -> None:
    cache.build("fused_moe_120")
    os.utime(cache.data / name, (NEW, NEW))
    other = cache.build("batch_decode")
    found = cache.look()
    assert found["fused_moe_120"].state is ModuleState.CHANGED
    assert name in found["fused_moe_120"].why
    os.utime(other / "one.o", (NEW + 1, NEW + 1))


def test_sources_that_are_gone(cache: Cache) -> None:
    cache.build("fused_moe_120")
    (cache.data / "one.cu").unlink()
    found = cache.look()["fused_moe_120"]
    assert found.state is ModuleState.ORPHANED
    assert "one.cu" in found.why


def test_installed_anew_with_old_times(cache: Cache) -> None:
    cache.build("fused_moe_120")
    (cache.data / "one.cu").write_text("patched")
    os.utime(cache.data / "one.cu", (OLD, OLD))
    os.utime(cache.record, (NEW, NEW))
    assert cache.look()["fused_moe_120"].state is ModuleState.HIDDEN


def test_of_another_version_or_not_finished(cache: Cache) -> None:
    cache.build("fused_moe_120", "0.6.4")
    (cache.build("batch_decode") / "batch_decode.so").unlink()
    found = cache.look()
    assert (found["fused_moe_120"].state, found["batch_decode"].state) == (ModuleState.OTHER, ModuleState.UNFINISHED)


def test_a_build_that_ninja_cannot_read(cache: Cache) -> None:
    (cache.build("fused_moe_120") / "build.ninja").write_text("build x: nothing y\n")
    assert cache.look()["fused_moe_120"].state is ModuleState.UNKNOWN


def test_another_folder_for_the_cache(cache: Cache, tmp_path: Path) -> None:
    cache.build("fused_moe_120")
    found = modules({"HOME": "/nowhere", "FLASHINFER_WORKSPACE_BASE": str(tmp_path)}, Path(sys.executable), cache.site)
    assert [one.name for one in found] == ["fused_moe_120"]
