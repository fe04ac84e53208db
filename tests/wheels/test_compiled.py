# SPDX-License-Identifier: Apache-2.0
"""Builds with compilers, of a small upstream that is built as vLLM is: the plan, what is refused, and what comes out."""

import ctypes
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stack.cli import cli
from stack.store import cache as places

from ..store.factories import Remote
from . import editing, small

SOURCE = ("--source", "git", "--device", "empty")
Build = Callable[..., Result]


@pytest.fixture(autouse=True)
def home() -> None:
    """The user's own pip, in place of none: the build environment comes from the registry."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.build(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def root(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "root"))


@pytest.fixture
def build(root: Path, cache: Path) -> Build:
    """Run `stack build wheels ARGS` on the small stack."""

    def run(*args: object) -> Result:
        return CliRunner().invoke(cli, ["--root", str(root), "--cache", str(cache), "build", "wheels", *map(str, args)])

    return run


def edit(root: Path, old: str, new: str) -> None:
    [patch] = root.glob("stacks/adding/vllm/*.patch")
    editing.edit(patch, old, new)


def log(cache: Path) -> str:
    [found] = cache.glob("wheels/building/*/log.txt")
    return found.read_text()


def test_the_plan(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_JOBS", "3")
    [one] = json.loads(build("--plan", "--json", *SOURCE).stdout)["plan"]
    assert (one["mode"], one["why"]) == ("source", "the patches change compiled code (csrc/offset.cpp)")
    plan = one["build"]
    version = plan["environment"]["VLLM_VERSION_OVERRIDE"]
    assert version.startswith("1.0+stack.g") and version.endswith(".empty.src")
    assert plan["environment"] == {
        "VLLM_TARGET_DEVICE": "empty",
        "VLLM_VERSION_OVERRIDE": version,
        "SETUPTOOLS_SCM_PRETEND_VERSION": version,
        "SOURCE_DATE_EPOCH": "315532800",
        "MAX_JOBS": "3",
    } | ({"CCACHE_NOHASHDIR": "1"} if shutil.which("ccache") and not shutil.which("sccache") else {})
    assert plan["requires"][:2] == ["setuptools==80.9.0", "wheel==0.45.1"]
    assert (plan["jobs"], plan["clones"], plan["lacking"]) == (3, [], [])


def test_what_is_missing_is_said_before_anything_starts(build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    ran = build("--plan", "--source", "git")
    assert ran.exit_code == 1
    assert "MISSING nvcc is not on PATH (install the CUDA toolkit that torch is built with)\n" in ran.output
    assert "MISSING g++ is not on PATH (apt-get install g++)\n" in ran.output
    assert "  TORCH_CUDA_ARCH_LIST=12.1a\n" in ran.output
    assert "  clones file:///nowhere/tiles.git v9.9 (or SMALL_SRC_DIR)\n" in ran.output
    assert "comment.git" not in ran.output
    assert "MISSING file:///nowhere/tiles.git is not reachable, and upstream's CMake clones it (SMALL_SRC_DIR can" in ran.output
    refused = build("--source", "git", "--out", tmp_path / "out")
    assert "vllm cannot be built on this machine: nvcc is not on PATH" in str(refused.exception)
    assert "patch is not on PATH" in str(refused.exception)
    assert not (tmp_path / "out").exists()


def test_a_repository_that_answers_or_is_replaced_by_a_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = Remote(tmp_path / "tiles")
    tiles.commit({"a": b"a"})
    root = small.build(tmp_path / "other", tiles.url)

    def plan() -> str:
        args = ["--root", str(root), "--cache", str(tmp_path / "cache"), "build", "wheels", "--plan", "--source", "git"]
        return CliRunner().invoke(cli, args).output

    assert f"clones {tiles.url} v9.9" in plan()
    assert "is not reachable" not in plan()
    shutil.rmtree(tiles.path)
    assert "is not reachable" in plan()
    monkeypatch.setenv("SMALL_SRC_DIR", str(tmp_path))
    assert "tiles" not in plan()


def test_an_environment_that_does_not_fit(build: Build, tmp_path: Path) -> None:
    def lacking(python: object, *args: object) -> str:
        return str(build(*SOURCE, "--python", python, "--out", tmp_path, *args).exception)

    empty = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(empty)], check=True)
    assert f"{empty}/bin/python has no setuptools (pip install 'setuptools==80.9.0')" in lacking(empty / "bin/python")
    assert f"{empty} is a folder: name its interpreter, such as {empty}/bin/python" in lacking(empty)
    assert "cannot be run (No such file or directory)" in lacking(tmp_path / "none")
    assert "does not answer as a Python" in lacking(shutil.which("true"))


@pytest.mark.slow
@pytest.mark.images
def test_a_wheel(build: Build, root: Path, cache: Path, tmp_path: Path) -> None:
    """Compiled from the carried tree; the next build compiles only what has changed."""
    ran = build(*SOURCE, "--out", tmp_path / "one", "--json")
    assert ran.exit_code == 0, ran.exception
    [one] = json.loads(ran.stdout)["wheels"]
    assert (one["mode"], one["reused"], one["edited"]) == ("source", False, ["compiled for empty"])
    assert "-linux_" in one["file"]
    assert added(Path(one["file"]), tmp_path / "first") == 42
    with zipfile.ZipFile(one["file"]) as archive:
        [said] = [name for name in archive.namelist() if name.endswith("_stack.json")]
        tools = json.loads(archive.read(said))["tools"]
    assert {"stack", "g++", "setuptools", "cmake", "ninja"} <= tools.keys()
    assert CliRunner().invoke(cli, ["wheel", "inspect", one["file"]]).exit_code == 0
    assert json.loads(build(*SOURCE, "--out", tmp_path / "two", "--json").stdout)["wheels"][0]["reused"]
    assert "adder.cpp.o" in log(cache)
    with_flags(build, tmp_path / "flags")
    shutil.rmtree(newest(cache))
    edit(root, '+extern "C" int offset() { return 41; }', '+extern "C" int offset() { return 99; }')
    [other] = json.loads(build(*SOURCE, "--out", tmp_path / "two", "--json").stdout)["wheels"]
    assert added(Path(other["file"]), tmp_path / "second") == 100
    assert Path(other["file"]).name != Path(one["file"]).name
    assert "offset.cpp.o" in log(cache) and "adder.cpp.o" not in log(cache)
    edit(root, "{ return 99; }", "{ return nothing; }")
    refused = str(build(*SOURCE, "--out", tmp_path / "two").exception)
    assert "the upstream's build failed: " in refused and "'nothing' was not declared" in refused
    assert f"the whole output is in {cache}" in refused


def with_flags(build: Build, out: Path) -> None:
    """Another environment makes another wheel, which says what it was; files that are ready-made do not come in."""
    with pytest.MonkeyPatch.context() as shell:
        shell.setenv("CXXFLAGS", "-DMORE=5")
        shell.setenv("VLLM_USE_PRECOMPILED", "1")
        ran = build(*SOURCE, "--out", out)
        assert "vllm: VLLM_USE_PRECOMPILED would add precompiled files: not passed to the build" in ran.output
        [wheel] = out.glob("*.whl")
        assert added(wheel, out) == 47
        statement = json.loads(wheel.with_name(f"{wheel.name}.intoto.json").read_bytes())
        said = statement["predicate"]["buildDefinition"]["internalParameters"]["environment"]
        assert said["CXXFLAGS"] == "-DMORE=5" and "VLLM_USE_PRECOMPILED" not in said
        assert json.loads(build(*SOURCE, "--out", out, "--json").stdout)["wheels"][0]["reused"]


def newest(cache: Path) -> Path:
    """The folder of the last build."""
    return max(cache.glob("wheels/building/*/log.txt"), key=lambda path: path.stat().st_mtime_ns).parent


def test_what_a_build_has_started_ends_with_it(tmp_path: Path) -> None:
    """The build is killed; compilers that it has started indirectly are still at work, in groups of their own as ninja's are."""
    work = "sleep 60 & echo $! > sleeping; setsid sh -c 'echo $$ > apart; sleep 60' & sleep 0.3; touch started; wait"
    script = (
        "import sys; from pathlib import Path; from stack.store import cache; from stack.wheels import compiled\n"
        "folder = Path(sys.argv[1])\n"
        "with cache.lock(folder) as held:\n"
        "    compiled._run(['sh', '-c', sys.argv[2]], {'PATH': '/usr/bin:/bin'}, folder, held, print)\n"
    )
    folder = tmp_path / "work"
    folder.mkdir()
    build = subprocess.Popen([sys.executable, "-c", script, str(folder), work])
    while not (folder / "started").exists():
        assert build.poll() is None
        time.sleep(0.05)
    started = [int((folder / name).read_text()) for name in ("sleeping", "apart")]
    assert all(Path(f"/proc/{one}").exists() for one in started)
    build.kill()
    build.wait()
    start = time.monotonic()
    with places.lock(folder):
        assert time.monotonic() - start < 30
        assert not any(Path(f"/proc/{one}").exists() for one in started)


@pytest.mark.slow
@pytest.mark.images
def test_one_target(build: Build, tmp_path: Path) -> None:
    ran = build(*SOURCE, "--target", "adder", "--out", tmp_path / "out", "--json")
    assert ran.exit_code == 0, ran.exception
    said = json.loads(ran.stdout)
    assert [one["file"] for one in said["libraries"]] == [str(tmp_path / "out/vllm/adder.abi3.so")]
    assert said["wheels"] == []
    assert ctypes.CDLL(str(tmp_path / "out/vllm/adder.abi3.so")).add(1) == 42
    for name in ("none", "all", "clean", "help", "install"):
        refused = build(*SOURCE, "--target", name, "--out", tmp_path / "out").exception
        assert f"there is no CMake target {name} for that device that makes a library: there are adder" in str(refused)


def added(wheel: Path, folder: Path) -> int:
    """What the extension of a wheel makes of 1."""
    with zipfile.ZipFile(wheel) as archive:
        return int(ctypes.CDLL(archive.extract("vllm/adder.abi3.so", folder)).add(1))
