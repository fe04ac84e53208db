# SPDX-License-Identifier: Apache-2.0
"""An image for aarch64, whole and real, on a machine with another processor: its base, the build, programs under qemu, podman."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stack.images import base as bases_
from stack.images import combining, image, own_base, reference, skopeo
from stack.images.reference import Reference
from stack.store import cache

from .. import system
from ..carry.world import GAMMA_PATCHES, World, home, template, world
from ..cli.conftest import SCRIPT, Stack, stack
from ..wheels.conftest import PUBLISHED
from ..wheels.factories import wheel
from .registry import Registry
from .test_build import METADATA, Machine, machine, prepare, storage

__all__ = ["home", "machine", "stack", "storage", "template", "world"]

pytestmark = pytest.mark.slow
ARM, X86 = "linux/arm64", "linux/amd64"


@pytest.fixture
def base(world: World, machine: Machine) -> str:
    """A small base for both processors, pinned; made in the user's cache on the first call (three minutes)."""
    system.demand("proot", "qemu-aarch64-static")
    note = machine.cache / "images" / "test-base.txt"
    with cache.lock(note):
        if not note.is_file() or not bases_.made(machine.cache, note.read_text().split()[1]).is_dir():
            made = own_base.make(own_base.BaseOrder("bookworm", ("python3",)), machine.cache, lambda *_: None).pin
            cache.put(note, f"{made.tag} {made.digest}".encode())
    tag, digest = note.read_text().split()
    (world.cache / "images").mkdir(exist_ok=True)
    (world.cache / "images/bases").symlink_to(machine.cache / "images/bases")
    pins = world.root / "pins.toml"
    pins.write_text(f'{pins.read_text()}\n[base]\nimage = "{bases_.MADE_HERE}"\ntag = "{tag}"\ndigest = "{digest}"\n')
    return digest


@pytest.fixture
def ready(base: str, world: World, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world with gamma published for both processors."""
    tags = [f"cp38-abi3-manylinux_2_28_{name}" for name in ("x86_64", "aarch64")]
    wheels = [wheel(tmp_path / "published", PUBLISHED, about=METADATA, tag=tag, wrong_tag=tag) for tag in tags]
    return prepare(world, machine, tmp_path, monkeypatch, *wheels)


def build(stack: Stack, folder: Path, platform: str) -> dict[str, Any]:
    ran = stack("image", "build", "gamma", "--platform", platform, "--output", f"oci:{folder}", "--json")
    assert ran.code == 0, ran.err
    said: dict[str, Any] = json.loads(ran.out)
    return said


def inside(world: World, layout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in an image."""
    options = ("--root", str(world.root), "--cache", str(world.cache), "image", "run", "--image", f"oci:{layout}", "--")
    return subprocess.run([sys.executable, "-c", SCRIPT, *options, *command], capture_output=True, text=True, check=False)


def test_an_image_for_another_processor(stack: Stack, ready: World, base: str, registry: Registry, tmp_path: Path) -> None:
    layout = tmp_path / "arm"
    said = build(stack, layout, ARM)
    assert said["platform"] == ARM
    assert said["base"] == {"name": bases_.MADE_HERE, "digest": base}
    assert build(stack, tmp_path / "again", ARM)["digest"] == said["digest"]
    [platform] = image.read(Reference(str(layout), layout=True)).platforms
    assert (platform.name, platform.digest) == (ARM, said["digest"])
    components = json.loads((layout / "system.cdx.json").read_bytes())["components"]
    assert any("arch=arm64" in one["purl"] for one in components if one["name"] == "libc6")

    # Each of these starts further programs of aarch64.
    look = "import os, platform, sysconfig; main = sysconfig.get_path('purelib') + '/gamma/main.py'"
    look = f"{look}; print(platform.machine(), os.getuid(), open(main).read(), end='')"
    look = f"{look}; assert os.access('/opt/stack', os.R_OK)"
    ran = inside(ready, layout, "sh", "-c", 'exec python -c "$1"', "sh", look)
    text = GAMMA_PATCHES["two/gamma/fix-limit.patch"][1]["gamma/main.py"].decode()
    assert (ran.returncode, ran.stdout) == (0, f"aarch64 10001 {text}"), ran.stderr
    ran = inside(ready, layout, "/opt/stack/entrypoint.sh", "echo", "serves")
    assert (ran.returncode, ran.stdout) == (0, "serves\n"), ran.stderr
    assert inside(ready, layout, "sh", "-c", "exit 7").returncode == 7

    build(stack, tmp_path / "x86", X86)
    both = [Reference(str(path), layout=True) for path in (layout, tmp_path / "x86")]
    index = combining.combine(both, tmp_path / "index")
    pushed = reference.parse(f"{registry.host}/arm:1")
    skopeo.copy(index, pushed, all_=True)
    assert {one.name for one in image.read(pushed).platforms} == {ARM, X86}

    ran = stack("image", "load", "--image", str(index), "--platform", ARM, "--to", "podman", "--name", "localhost/stack:arm")
    assert ran.out.splitlines()[0] == "localhost/stack:arm (linux/arm64) is in podman", ran.err
    inspect = ["podman", "image", "inspect", "--format", "{{.Architecture}} {{.User}}", "localhost/stack:arm"]
    assert subprocess.run(inspect, check=True, capture_output=True, text=True).stdout.split() == ["arm64", "10001:10001"]


def test_what_the_base_lacks_cannot_be_installed_for_another_processor(stack: Stack, ready: World, tmp_path: Path) -> None:
    (ready.root / "docker/system/packages.txt").write_text("python3\nof-nobody\n")
    ran = stack("image", "build", "gamma", "--platform", ARM, "--output", f"oci:{tmp_path / 'image'}")
    assert "the base image lacks of-nobody, and programs for arm64 do not run on this machine" in ran.refused()
