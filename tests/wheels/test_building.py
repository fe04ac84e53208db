# SPDX-License-Identifier: Apache-2.0
"""`stack build wheels` on a small upstream: what comes out, what is refused, and that it is the same everywhere."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.version import Version

from stack.model import digest
from stack.store import cache
from stack.wheels import metadata

from ..carry.world import GAMMA_PATCHES, World
from ..cli.conftest import SCRIPT, Stack
from ..sweeps import sweep
from .conftest import PUBLISHED, VERSION
from .factories import offer, wheel

X86 = "--platform=x86_64"


def version(world: World) -> str:
    return f"2.0+stack.g{digest.of(world.load())[:8]}"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_patched_files_are_in_it_and_all_else_is_as_published(
    stack: Stack, world: World, published: Path, tmp_path: Path
) -> None:
    ran = stack("build", "wheels", "gamma", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("gamma: overlay: the patches change Python only")
    own = version(world)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    wheels = [f"gamma_pkg-{own}-cp38-abi3-manylinux_2_28_{machine}.whl" for machine in ("aarch64", "x86_64")]
    assert names == sorted([*wheels, *(f"{name}.intoto.json" for name in wheels)])
    found = members(tmp_path / "out" / wheels[1])
    folder = f"gamma_pkg-{own}.dist-info"
    after = (
        PUBLISHED | dict(GAMMA_PATCHES["two/gamma/fix-limit.patch"][1]) | dict(GAMMA_PATCHES["one/gamma/tool-flag.patch"][1])
    )
    assert {name: data for name, data in found.items() if not name.startswith(folder)} == after | {
        "gamma/_version.py": f"__version__ = version = {own!r}\n__version_tuple__ = version_tuple = (2, 0, {own[4:]!r})\n".encode()
    }
    assert list(found)[-1] == f"{folder}/RECORD"
    about = found[f"{folder}/METADATA"].decode()
    assert about.startswith(
        f"Metadata-Version: 2.4\nName: gamma-pkg\nVersion: {own}\nRequires-Python: >=3.8\nRequires-Dist: torch"
    )
    assert about.endswith("\n\nWords.\n\nVersion: of another kind\n")
    rows = metadata.parsed_record(found[f"{folder}/RECORD"])
    assert rows.pop(f"{folder}/RECORD") == ("", "")
    assert rows == {name: metadata.row(data) for name, data in found.items() if name != f"{folder}/RECORD"}


def test_it_says_what_is_in_it(stack: Stack, world: World, published: Path, tmp_path: Path) -> None:
    assert stack("build", "wheels", "gamma", X86, "--out", tmp_path).code == 0
    [path] = tmp_path.glob("*.whl")
    found = members(path)
    folder = f"gamma_pkg-{version(world)}.dist-info"
    said = json.loads(found[f"{folder}/stack_stack.json"])
    base = next(published.glob("gamma_pkg-2.0-*x86_64.whl"))
    loaded = world.load()
    assert said["digest"] == digest.of(loaded)
    assert said["base"] == {"file": base.name, "sha256": hashlib.sha256(base.read_bytes()).hexdigest()}
    patched = {name: found[name] for name in ("gamma/main.py", "gamma/tool.py")}
    assert [(one["path"], one["mode"], one["blob"]) for one in said["files"] if one["upstream"] == "gamma"] == [
        (name, "100644", hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()) for name, data in patched.items()
    ]
    assert {one["path"] for one in said["files"] if one["upstream"] == "alpha"} == {
        "alpha/core.py",
        "alpha/extra.py",
        "3rd/beta/include/b.h",
    }
    assert loaded.pins.get("gamma").commit == said["pins"]["gamma"]["commit"]
    assert set(said["edited"]) >= {
        "gamma/main.py is patched",
        "gamma/tool.py is patched",
        f"Version: 2.0 became {version(world)}",
    }
    bom = json.loads(found[f"{folder}/sboms/stack.cdx.json"])
    assert (bom["bomFormat"], bom["metadata"]["component"]["version"]) == ("CycloneDX", version(world))
    statement = json.loads(path.with_name(f"{path.name}.intoto.json").read_bytes())
    assert statement["subject"] == [{"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}}]
    build = statement["predicate"]["buildDefinition"]
    assert build["internalParameters"]["digest"] == said["digest"]
    assert {"name": base.name, "digest": {"sha256": said["base"]["sha256"]}} in build["resolvedDependencies"]
    patches = {one["name"]: one for one in build["resolvedDependencies"] if one["name"].endswith(".patch")}
    assert list(patches) == list(GAMMA_PATCHES)
    raw = (world.root / "stacks/one/gamma/hook-main.patch").read_bytes()
    hooked = patches["one/gamma/hook-main.patch"]
    assert (hooked["digest"], hooked["annotations"]) == ({"sha256": hashlib.sha256(raw).hexdigest()}, {"subject": "Hook main"})


def test_stacks_of_the_same_effect_have_the_same_wheels(stack: Stack, world: World, published: Path, tmp_path: Path) -> None:
    """Other words, other names and another order of patches: the digest stays, and so does every byte."""
    assert stack("build", "wheels", "gamma", X86, "--out", tmp_path / "one").code == 0
    before = digest.of(world.load())
    world.edit("stacks/one/gamma/hook-main.patch", "Why it is needed.", "Why it is really needed.")
    world.edit("stacks/one/series.toml", 'why = "It is needed."', 'why = "For another reason."')
    one, other = (world.root / f"stacks/one/gamma/{name}.patch" for name in ("hook-main", "tool-flag"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)  # the order is that of the names in series.toml
    shutil.rmtree(world.cache / "wheels/built")  # made anew
    assert digest.of(world.load()) == before
    assert stack("build", "wheels", "gamma", X86, "--out", tmp_path / "two").code == 0
    [left], [right] = ((tmp_path / name).glob("*.whl") for name in ("one", "two"))
    assert left.read_bytes() == right.read_bytes()
    statements = [json.loads(path.with_name(f"{path.name}.intoto.json").read_bytes()) for path in (left, right)]
    assert statements[0]["subject"] == statements[1]["subject"]


def test_a_patch_that_states_what_it_does_not_result_in_makes_no_wheel(
    stack: Stack, world: World, published: Path, tmp_path: Path
) -> None:
    before = digest.of(world.load())
    world.edit("stacks/one/gamma/tool-flag.patch", "+flag", "+flog")
    assert digest.of(world.load()) == before
    line = stack("build", "wheels", "gamma", X86, "--out", tmp_path / "out").refused()
    assert "gamma/tool.py: the patches, the last of them stacks/one/gamma/tool-flag.patch, state 100644" in line
    assert not [*tmp_path.glob("out/*.whl")]


def test_another_package_keeps_the_name_and_its_edits_are_told(
    stack: Stack, world: World, published: Path, tmp_path: Path
) -> None:
    ran = stack("build", "wheels", "gamma", "--from", "gamma-pkg-cpu", "--out", tmp_path, "--json")
    [one] = json.loads(ran.out)["wheels"]
    assert Path(one["file"]).name == f"gamma_pkg-{version(world)}.cpu-cp38-abi3-manylinux_2_28_x86_64.whl"
    assert "Name: gamma-pkg-cpu became gamma-pkg" in one["edited"]
    assert Version(Path(one["file"]).name.split("-")[1]).public == "2.0"


def test_tags_come_from_the_name(stack: Stack, published: Path, tmp_path: Path) -> None:
    """As published, the WHEEL file of the second one says what its name does not."""
    stack("build", "wheels", "gamma", "--platform", "aarch64", "--out", tmp_path)
    [path] = tmp_path.glob("*.whl")
    said = next(data for name, data in members(path).items() if name.endswith("/WHEEL")).decode()
    assert said == "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: false\nTag: cp38-abi3-manylinux_2_28_aarch64\n"


@pytest.mark.parametrize(
    ("path", "data", "refusal"),
    [
        ("gamma/main.py", b"another\n", "has another gamma/main.py than the pin"),
        ("gamma/main.py", None, "has no gamma/main.py, which the patches change"),
    ],
)
def test_a_wheel_that_is_not_of_the_pin_is_refused(
    stack: Stack, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, data: bytes | None, refusal: str
) -> None:
    files: Mapping[str, bytes] = {name: was for name, was in (PUBLISHED | {path: data or b""}).items() if data or name != path}
    offer(tmp_path / "index", monkeypatch, wheel(tmp_path / "published", files))
    assert refusal in stack("build", "wheels", "gamma", "--out", tmp_path / "out").refused()
    assert list((tmp_path / "out").iterdir()) == []


def test_what_cannot_be_built_is_refused_before_anything_is_fetched(stack: Stack, published: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert (
        "alpha: the patches change compiled code"
        in stack("build", "wheels", "alpha", "--mode", "overlay", "--out", out).refused()
    )
    assert (
        "alpha cannot be built from source: the patches change compiled code"
        in stack("build", "wheels", "alpha", "--out", out).refused()
    )
    assert (
        "beta has no wheel of its own: it is in the wheel of alpha" in stack("build", "wheels", "beta", "--out", out).refused()
    )
    assert "has no wheel for riscv64" in stack("build", "wheels", "gamma", "--platform", "riscv64", "--out", out).refused()
    assert "has no wheel for cp27" in stack("build", "wheels", "gamma", "--python-tag", "cp27", "--out", out).refused()
    assert "does not say of which upstream" in stack("build", "wheels", "--from", "x", "--out", out).refused()
    assert "no wheel of nowhere 2.0" in stack("build", "wheels", "gamma", "--from", "nowhere", "--out", out).refused()
    assert not out.exists() or list(out.iterdir()) == []
    plan = json.loads(stack("build", "wheels", "--plan", "--json").out)["plan"]
    assert [(one["upstream"], one["mode"], one["build"]) for one in plan] == [
        ("gamma", "overlay", None),
        ("alpha", "source", None),
    ]


def test_a_project_that_no_registry_has(stack: Stack, world: World, tmp_path: Path) -> None:
    text = (world.root / "pins.toml").read_text()
    (world.root / "pins.toml").write_text("".join(line for line in text.splitlines(True) if "gamma-pkg" not in line))
    refused = stack("build", "wheels", "gamma", "--source", "git", "--out", tmp_path / "out").refused()
    assert "gamma names no package in pins.toml: add archive" in refused
    assert not (tmp_path / "out").exists()


def test_pip_installs_it(stack: Stack, world: World, published: Path, tmp_path: Path) -> None:
    stack("build", "wheels", "gamma", X86, "--out", tmp_path / "out")
    [path] = (tmp_path / "out").glob("*.whl")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path / "site"),
        str(path),
    ]
    assert subprocess.run(pip, check=False, capture_output=True).returncode == 0
    script = "import gamma._version as v, importlib.metadata as m; print(v.__version__, m.version('gamma-pkg'))"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [version(world)] * 2


def built(world: World, out: Path, cache: Path, **env: str) -> dict[str, str]:
    """Build in a process of its own; the hashes of what it made."""
    command = [sys.executable, "-c", SCRIPT, "--root", world.root, "--cache", cache, "build", "wheels", "gamma", "--out", out]
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def test_the_same_bytes_everywhere(world: World, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder, umask, locale, time zone, home, hash seed and time of day."""
    first = built(world, tmp_path / "one", world.cache)
    other = tmp_path / "elsewhere" / "cache"
    other.parent.mkdir()
    (tmp_path / "cache").rename(other)
    before = os.umask(0o077)
    try:
        time.sleep(2.1)  # ZIP knows every other second
        second = built(
            world,
            tmp_path / "elsewhere/two",
            other,
            TZ="Pacific/Kiritimati",
            LC_ALL="tr_TR.UTF-8",
            PYTHONHASHSEED="7",
            USER="else",
        )
    finally:
        os.umask(before)
    assert first == second
    kept = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "elsewhere/two").iterdir()}
    assert set(kept.values()) == {0o644}


def test_what_was_built_is_found_again_and_what_is_damaged_is_not(
    stack: Stack, world: World, published: Path, tmp_path: Path
) -> None:
    def build() -> tuple[bool, str]:
        [one] = json.loads(stack("build", "wheels", "gamma", X86, "--out", tmp_path / "out", "--json").out)["wheels"]
        return one["reused"], one["sha256"]

    (first, sha256), (again, _) = build(), build()
    assert (first, again) == (False, True)
    [kept] = world.cache.glob("wheels/built/*/*.whl")
    kept.chmod(0o644)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    assert build() == (False, sha256)
    [base] = world.cache.glob("wheels/published/gamma-pkg/*.whl")
    base.write_bytes(b"broken")
    kept.unlink()
    assert build() == (False, sha256)
    assert hashlib.sha256((tmp_path / "out" / kept.name).read_bytes()).hexdigest() == sha256


def test_what_killed_builds_left_goes_and_what_runs_stays(stack: Stack, world: World, published: Path, tmp_path: Path) -> None:
    left, runs = (world.cache / "wheels/built" / name for name in ("left", "runs"))
    for folder in (left, runs):
        folder.mkdir(parents=True)
        (folder / ".gamma.whl.abc.part").write_bytes(b"half")
    (tmp_path / "out").mkdir()
    fresh = tmp_path / "out/.gamma.whl.abc.part"
    fresh.write_bytes(b"half")
    with cache.lock(runs):
        assert stack("build", "wheels", "gamma", X86, "--out", tmp_path / "out").code == 0
    assert (left.exists(), runs.exists(), fresh.exists()) == (False, True, True)


def test_two_builds_at_once(world: World, published: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, "--root", world.root, "--cache", world.cache, "build", "wheels", "gamma", "--out"]
    running = [subprocess.Popen([*command, tmp_path / "out"], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [one.wait() for one in running] == [0, 0]
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", ".json", ".whl", ".whl"]
    for path in (tmp_path / "out").glob("*.whl"):
        members(path)


@sweep("kills", 5, 15)
@pytest.mark.slow
def test_killed_at_any_moment_nothing_half_is_there(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    big = PUBLISHED | {"gamma/large.bin": random.Random(1).randbytes(30_000_000)}
    offer(tmp_path / "index", monkeypatch, wheel(tmp_path / "published", big))
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        "--root",
        world.root,
        "--cache",
        world.cache,
        "build",
        "wheels",
        "gamma",
        "--out",
        out,
    ]
    start = time.monotonic()
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    took = time.monotonic() - start
    [whole] = out.glob("*.whl")
    wanted = hashlib.sha256(whole.read_bytes()).hexdigest()
    moments = random.Random(2)
    for _ in range(kills):
        for path in [*out.iterdir(), *world.cache.glob("wheels/*/*/*.whl")]:
            path.unlink()
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.2, took * 1.05))
        running.send_signal(signal.SIGKILL)
        running.wait()
        for path in [*out.glob("*.whl"), *world.cache.glob("wheels/built/*/*.whl")]:
            if not path.name.startswith("."):
                assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert hashlib.sha256(whole.read_bytes()).hexdigest() == wanted


def test_a_version_file_of_another_kind_stays(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = PUBLISHED | {"gamma/_version.py": b"__version__ = '2.0'\n"}
    offer(tmp_path / "index", monkeypatch, wheel(tmp_path / "published", files))
    assert stack("build", "wheels", "gamma", "--out", tmp_path / "out").code == 0
    [path] = (tmp_path / "out").glob("*.whl")
    assert members(path)["gamma/_version.py"] == b"__version__ = '2.0'\n"
    assert VERSION not in members(path).values()


def test_a_wheel_with_data_beside_its_package(
    stack: Stack, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PUBLISHED | {"gamma_pkg-2.0.data/scripts/tool": b"#!python\n"}
    offer(tmp_path / "index", monkeypatch, wheel(tmp_path / "published", files))
    assert stack("build", "wheels", "gamma", "--out", tmp_path / "out").code == 0
    [path] = (tmp_path / "out").glob("*.whl")
    assert f"gamma_pkg-{version(world)}.data/scripts/tool" in members(path)
    assert stack("wheel", "inspect", path).code == 0


@pytest.mark.parametrize(
    ("name", "data", "refusal"),
    [
        ("other-1.0.dist-info/METADATA", b"Name: other\n", "has another dist-info folder, other-1.0.dist-info"),
        ("gamma_pkg-2.0.dist-info/METADATA", b"Name: \xff\n", "METADATA is not UTF-8"),
    ],
)
def test_a_wheel_that_pip_would_refuse(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, refusal: str
) -> None:
    path = wheel(tmp_path / "published", PUBLISHED)
    with zipfile.ZipFile(path) as archive:
        content = {member: archive.read(member) for member in archive.namelist()} | {name: data}
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in content.items():
            archive.writestr(member, text)
    offer(tmp_path / "index", monkeypatch, path)
    assert refusal in stack("build", "wheels", "gamma", "--out", tmp_path / "out").refused()


def test_a_published_wheel_that_is_another_than_it_says(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that no patch changes is copied without a look, unless one is asked for."""
    path = wheel(tmp_path / "published", PUBLISHED)
    with zipfile.ZipFile(path) as archive:
        content = {member: archive.read(member) for member in archive.namelist()} | {"gamma/_C.abi3.so": b"another"}
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in content.items():
            archive.writestr(member, data)
    offer(tmp_path / "index", monkeypatch, path)
    assert stack("build", "wheels", "gamma", "--out", tmp_path / "out").code == 0
    refused = stack("build", "wheels", "gamma", "--out", tmp_path / "out", "--verify").refused()
    assert "gamma/_C.abi3.so does not match RECORD" in refused


def test_options_that_fit_nothing_are_refused(stack: Stack, published: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    assert "--from names nosuch, which is not built" in stack("build", "wheels", "gamma", "--from", "nosuch=x", *out).refused()
    assert "has no wheel for whl" in stack("build", "wheels", "gamma", "--platform", "whl", *out).refused()
    assert "../../x" in stack("build", "wheels", "gamma", "--from", "../../x", *out).refused()
    compiled = (("--target", "x"), ("--device", "cpu"), ("--python", sys.executable))
    assert all(
        "compiled builds only, and gamma is not compiled" in stack("build", "wheels", "gamma", *one, *out).refused()
        for one in compiled
    )
    published = "choose among published wheels, but alpha is built from source"
    assert all(
        published in stack("build", "wheels", "alpha", *one, *out).refused() for one in ((X86,), ("--python-tag", "cp38"))
    )


def test_a_wheel_says_its_lane_and_none_passes_for_another_lanes(
    stack: Stack, world: World, published: Path, tmp_path: Path
) -> None:
    assert stack("lane", "add", "old").code == 0
    assert stack("build", "wheels", "gamma", X86, "--out", tmp_path / "main").code == 0
    ran = stack("build", "wheels", "gamma", X86, "--out", tmp_path / "old", "--lane", "old", "--json")
    said = json.loads(ran.out)
    assert (said["lane"], said["wheels"][0]["reused"]) == ("old", False)
    [main], [old] = ([*(tmp_path / name).glob("*.whl")] for name in ("main", "old"))
    # The lane carries the same files on the same pins: only what the wheels say tells them apart.
    assert main.name == f"gamma_pkg-{version(world)}-cp38-abi3-manylinux_2_28_x86_64.whl"
    assert old.name == main.name.replace(version(world), f"{version(world)}.lane.old")
    about = [json.loads(members(one)[f"{one.name.split('-cp38')[0]}.dist-info/stack_stack.json"]) for one in (main, old)]
    assert "lane" not in about[0]
    assert (about[1]["lane"], about[1]["digest"]) == ("old", about[0]["digest"])
    statement = json.loads((tmp_path / "old" / f"{old.name}.intoto.json").read_text())
    assert statement["predicate"]["buildDefinition"]["externalParameters"]["lane"] == "old"
    assert "\nlane    old\n" in stack("wheel", "inspect", old).out
    assert "lane " not in stack("wheel", "inspect", main).out


def test_a_lanes_pins_and_patches_decide(stack: Stack, world: World, published: Path, tmp_path: Path) -> None:
    assert stack("lane", "add", "old").code == 0
    before = version(world)
    moved = stack("rebase", "gamma", "--onto", "v2.1", "--with-required")
    assert moved.code == 0, moved.err
    ran = stack("build", "wheels", "gamma", X86, "--out", tmp_path, "--lane", "old")
    assert ran.code == 0, ran.err
    assert [one.name.split("-cp38")[0] for one in tmp_path.glob("*.whl")] == [f"gamma_pkg-{before}.lane.old"]
    unknown = stack("build", "wheels", "gamma", "--lane", "older")
    assert (unknown.code, "unknown lane 'older'" in unknown.err) == (2, True)
