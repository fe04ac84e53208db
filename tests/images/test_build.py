# SPDX-License-Identifier: Apache-2.0
"""`stack image build` with a real engine, on a small real base: what is in the image, and that it is the same everywhere."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stack.images import skopeo, tools
from stack.model import digest
from stack.store import cache, indexes

from .. import system
from ..carry.world import GAMMA_PATCHES, World, home, template, world
from ..cli.conftest import Stack, stack
from ..wheels.conftest import PUBLISHED
from ..wheels.factories import offer, wheel
from . import bases

__all__ = ["home", "stack", "template", "world"]

DOCKER = Path(__file__).parents[2] / "docker"
METADATA = "Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nRequires-Dist: packaging\n"

pytestmark = pytest.mark.slow
SHOW = "cat /opt/stack/lib/python3*/site-packages/gamma/main.py"


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    system.demand(*bases.PROGRAMS)
    with bases.storage(tmp_path_factory.mktemp("engine") / "storage") as variables:
        yield variables


@dataclass(frozen=True, slots=True)
class Machine:
    """What the worlds' own caches and settings take from this machine's: the base, a cache, the way to the index."""

    base: str
    cache: Path
    variables: dict[str, str]


@pytest.fixture(scope="session")
def machine(storage: dict[str, str]) -> Machine:
    """Made before a world has settings of its own."""
    user = indexes.settings()
    pip = {"PIP_EXTRA_INDEX_URL": " ".join(index.url for index in user.indexes)}
    pip |= {"PIP_CERT": str(user.certificates)} if user.certificates is not None else {}
    tools.folder(cache.root(), lambda _: None)
    with pytest.MonkeyPatch.context() as patched:
        for name, value in storage.items():
            patched.setenv(name, value)
        return Machine(bases.small(), cache.root(), storage | pip)


@pytest.fixture
def base(machine: Machine) -> str:
    return machine.base


@pytest.fixture
def ready(world: World, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world with `docker/`, gamma published for this machine, and the user's index beside that."""
    offer(tmp_path / "index", monkeypatch, wheel(tmp_path / "published", PUBLISHED, about=METADATA))
    for name, value in machine.variables.items():
        monkeypatch.setenv(name, value)
    (world.cache / "images").mkdir()
    for shared in ("environments", "images/locks", "images/packages"):
        (machine.cache / shared).mkdir(parents=True, exist_ok=True)
        (world.cache / shared).symlink_to(machine.cache / shared)
    shutil.copytree(DOCKER, world.root / "docker")
    (world.root / "docker/system/packages.txt").write_text("python3\n")
    return world


def build(stack: Stack, base: str, folder: Path, *more: str) -> dict[str, Any]:
    ran = stack("image", "build", "gamma", "--base", base, "--output", f"oci:{folder}", "--json", *more)
    assert ran.code == 0, ran.err
    said: dict[str, Any] = json.loads(ran.out)
    return said


def inside(
    image: str, *command: str, tampered: str | None = None, mounted: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a container of an image as its user, after root changed something there."""
    container = subprocess.run(["buildah", "from", image], check=True, capture_output=True, text=True).stdout.strip()
    run = ["buildah", "run", "--isolation=oci", "--runtime=runc", "--network=none"]
    try:
        if tampered is not None:
            subprocess.run([*run, "--user=0", container, "sh", "-c", tampered], check=True, capture_output=True)
        volume = [f"--volume={mounted}"] if mounted is not None else []
        return subprocess.run([*run, *volume, container, *command], check=False, capture_output=True, text=True)
    finally:
        subprocess.run(["buildah", "rm", container], check=True, capture_output=True)


def test_what_it_builds_is_what_the_stack_carries(stack: Stack, ready: World, base: str, tmp_path: Path) -> None:
    folder = tmp_path / "image"
    said = build(stack, base, folder)
    own = digest.of(ready.load())
    assert said["stack"] == own
    assert said["image"] == f"oci:{folder}"
    assert skopeo.digest(skopeo.raw(f"oci:{folder}")) == said["digest"]
    config = json.loads(skopeo.config(f"oci:{folder}"))
    labels, runs = config["config"]["Labels"], config["config"]
    assert labels["stack.digest"] == own
    assert json.loads(labels["stack.pins"])["gamma"]["tag"] == "v2.0"
    assert labels["org.opencontainers.image.base.digest"] == base.rpartition("@")[2]
    assert labels["org.opencontainers.image.created"] == config["created"]
    assert runs["User"] == "10001:10001"
    assert runs["Entrypoint"] == ["/opt/stack/entrypoint.sh"]
    assert runs["Healthcheck"]["Test"] == ["CMD", "/opt/stack/bin/python", "/opt/stack/healthcheck.py"]
    assert "FLASHINFER_CUDA_ARCH_LIST=12.1a" in runs["Env"]

    locked = (folder / "requirements.txt").read_text().splitlines()
    names = [line.partition("==")[0] for line in locked]
    assert {"gamma-pkg", "git-carry", "packaging", "pip"} <= set(names)
    assert len(locked) == said["packages"]
    python = json.loads((folder / "python.cdx.json").read_bytes())["components"]
    assert sorted(one["name"] for one in python) == names
    assert "libc6" in {one["name"] for one in json.loads((folder / "system.cdx.json").read_bytes())["components"]}

    image = said["id"]
    ran = inside(image, "/opt/stack/entrypoint.sh", "sh", "-c", SHOW)
    assert (ran.returncode, ran.stdout) == (0, GAMMA_PATCHES["two/gamma/fix-limit.patch"][1]["gamma/main.py"].decode()), (
        ran.stderr
    )
    assert inside(image, "id", "-u").stdout.strip() == "10001"

    broken = "for one in /opt/stack/lib/python3*/site-packages/gamma/main.py; do echo more >> $one; done"
    ran = inside(image, "/opt/stack/entrypoint.sh", "echo", "serves", tampered=broken)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "gamma/main.py is not what was installed" in ran.stderr
    ran = inside(image, "env", "STACK_UNCHECKED=1", "/opt/stack/entrypoint.sh", "echo", "serves", tampered=broken)
    assert (ran.returncode, ran.stdout) == (0, "serves\n")
    bad = ("env", "TIKTOKEN_ENCODINGS_BASE=/nowhere", "/opt/stack/entrypoint.sh", "echo", "serves")
    ran = inside(image, *bad)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "TIKTOKEN_ENCODINGS_BASE" in ran.stderr
    assert "stack doctor finds that something is wrong: mend it, or set STACK_UNCHECKED=1 to serve all the same\n" in ran.stderr
    assert inside(image, "env", "STACK_UNCHECKED=1", *bad[1:]).stdout == "serves\n"
    # The recipe is the doctor's, too; one that the image does not know is none of its business.
    for recipe in ("gpt-oss-120b-spark", "my-own"):
        ran = inside(image, "env", f"STACK_RECIPE={recipe}", "/opt/stack/entrypoint.sh", "echo", "serves")
        assert (ran.returncode, ran.stdout) == (0, "serves\n"), ran.stderr
    # Without a command it serves; this small world has no vLLM.
    assert "vllm" in inside(image, "/opt/stack/entrypoint.sh", "--model", "x").stderr


def test_two_builds_are_one_image_and_another_stack_is_another(
    stack: Stack, ready: World, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = build(stack, base, tmp_path / "first")
    (elsewhere := tmp_path / "else where").mkdir()
    before = os.umask(0o077)
    try:
        with bases.storage(tmp_path / "storage") as variables, monkeypatch.context() as patched:
            for name, value in {**variables, "TMPDIR": str(elsewhere), "TZ": "Asia/Tokyo", "LANG": "tr_TR.UTF-8"}.items():
                patched.setenv(name, value)
            patched.setattr(tempfile, "tempdir", None)
            second = build(stack, base, tmp_path / "second", "--engine", "podman")
    finally:
        os.umask(before)
        tempfile.tempdir = None
    assert second["digest"] == first["digest"]
    assert second["wheels"] == first["wheels"]
    for name in ("system.cdx.json", "python.cdx.json", "requirements.txt"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()

    series = ready.root / "stacks/two/series.toml"
    series.write_text(series.read_text().replace('[[patch]]\nupstream = "gamma"\nfile = "gamma/fix-limit.patch"\n', ""))
    (ready.root / "stacks/two/gamma/fix-limit.patch").unlink()
    third = build(stack, base, tmp_path / "first", "--requirements", str(tmp_path / "second/requirements.txt"))
    assert third["digest"] != first["digest"]
    text = inside(third["id"], "sh", "-c", SHOW).stdout
    assert text == GAMMA_PATCHES["one/gamma/hook-main.patch"][1]["gamma/main.py"].decode()
    assert skopeo.digest(skopeo.raw(f"oci:{tmp_path / 'first'}")) == third["digest"]

    # Both bring the stack that they were built of.
    ends = [f"oci:{tmp_path / name}" for name in ("second", "first")]
    ran = stack("image", "bisect", *ends, "--run", "test -e $STACK_ROOT/stacks/two/gamma/fix-limit.patch")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "the first bad change: two/gamma/fix-limit.patch dropped"


def test_mounted_sources_run_in_the_image_for_development(stack: Stack, ready: World, base: str, tmp_path: Path) -> None:
    said = build(stack, base, tmp_path / "image", "--target", "development")
    (tmp_path / "gamma").mkdir()
    (tmp_path / "gamma/tool.py").write_text("WHERE = 'mine'\n")
    look = "import gamma.tool, gamma, pathlib; print(gamma.tool.WHERE, pathlib.Path(gamma.__path__[0], '_C.abi3.so').exists())"
    ran = inside(said["id"], "/opt/stack/develop.sh", "python", "-c", look, mounted=f"{tmp_path / 'gamma'}:/src/gamma:ro")
    assert (ran.returncode, ran.stdout) == (0, "mine True\n"), ran.stderr
    assert "WHERE" not in inside(said["id"], "sh", "-c", SHOW).stdout


def test_what_installs_has_no_network(stack: Stack, ready: World, base: str, tmp_path: Path) -> None:
    dockerfile = ready.root / "docker/Dockerfile"
    text = dockerfile.read_text()
    with socket.create_server(("127.0.0.1", 0)) as server:
        ask = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {server.getsockname()[1]}), 5)'"
        dockerfile.write_text(text.replace("ARG SYSTEM_CONTENT\n", f"ARG SYSTEM_CONTENT\nRUN {ask}\n"))
        build(stack, base, tmp_path / "image")  # the step with network, where it answers
        dockerfile.write_text(text.replace("ARG WHEELS_CONTENT\n", f"ARG WHEELS_CONTENT\nRUN {ask}\n"))
        ran = stack("image", "build", "gamma", "--base", base, "--output", f"oci:{tmp_path / 'other'}")
    assert "ConnectionRefusedError" in ran.refused() or "Network is unreachable" in ran.refused()
    assert not (tmp_path / "other").exists()


def test_refusals(stack: Stack, ready: World, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, _, digest_ = base.rpartition("@")
    assert "names no base image with a digest" in stack("image", "build", "gamma").refused()
    assert "has no digest" in stack("image", "build", "gamma", "--base", place).refused()
    other = f"{place}@sha256:{'0' * 64}"
    assert f"has the digest {digest_}, not" in stack("image", "build", "gamma", "--base", other).refused()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter").write_text("mine")
    assert (
        "not an OCI layout"
        in stack("image", "build", "gamma", "--base", base, "--output", f"oci:{tmp_path / 'full'}").refused()
    )
    assert (tmp_path / "full/letter").read_text() == "mine"
    (tmp_path / "lock.txt").write_text("packaging>=24\n")
    ran = stack("image", "build", "gamma", "--base", base, "--requirements", tmp_path / "lock.txt")
    assert "has an invalid line" in ran.refused()
    (tmp_path / "lock.txt").write_text(f"packaging==25.0 --hash=sha256:{'0' * 64}\n")
    ran = stack("image", "build", "gamma", "--base", base, "--requirements", tmp_path / "lock.txt")
    # A download that takes long is named in a line of its own before.
    assert (ran.code, "DO NOT MATCH THE HASHES" in ran.err.splitlines()[-1]) == (2, True)
    shutil.rmtree(ready.root / "docker")
    assert "docker/Dockerfile is missing" in stack("image", "build", "gamma", "--base", base).refused()
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "apt-get install buildah runc skopeo" in stack("image", "build", "gamma", "--base", base).refused()
