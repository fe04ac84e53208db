# SPDX-License-Identifier: Apache-2.0
"""The ends of a bisection that are images: each brings the stack that it was built of."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.images import build, labels, pulling, reference, skopeo
from stack.images.bisecting import ends
from stack.model import digest, lanes
from stack.model import stack as stacks

from ..world import World


def sources(world: World) -> dict[str, bytes]:
    """The files of a stack as its image has them."""
    below = str(labels.SOURCES).lstrip("/")
    named = ["pins.toml", *(str(file.relative_to(world.root)) for file in (world.root / "stacks").rglob("*") if file.is_file())]
    return {f"{below}/{name}": (world.root / name).read_bytes() for name in named}


def test_an_image_brings_its_stack(world: World, tmp_path: Path) -> None:
    world.image({"usr/bin/serve": b"", **sources(world)})
    found = ends.load(f"oci:{world.layout}", world.root, tmp_path / "found")
    assert digest.of(found) == digest.of(world.stack)
    assert found.root == tmp_path / "found"
    skopeo.copy(f"oci:{world.layout}", reference.parse(f"{world.host}/ends:1"))
    again = ends.load(f"{world.host}/ends:1", world.root, tmp_path / "again")
    assert digest.of(again) == digest.of(world.stack)


@pytest.mark.parametrize("name", ["host/name:1", "host:5000/name@sha256:" + "0" * 64, "oci:folder", "docker://host/name:1"])
def test_what_is_an_image(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "pull", lambda *_: (_ for _ in ()).throw(StackError("asked for")))
    with pytest.raises(StackError, match=r"asked for|oci:folder"):
        ends.load(name, tmp_path, tmp_path / "found")


@pytest.mark.parametrize("name", ["main", "origin/main", "v1.0", "feature/one@{1}", "HEAD~3"])
def test_what_is_a_revision(name: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="is not a stack's folder, an image, or a revision"):
        ends.load(name, tmp_path, tmp_path / "found")


def test_an_image_that_brings_none_or_another_one(offline: World, tmp_path: Path) -> None:
    offline.image()
    with pytest.raises(StackError, match="does not contain the stack"):
        ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "none")
    offline.image(sources(offline), **{labels.STACK: "0" * 64})
    with pytest.raises(StackError, match="contains another stack than its label names"):
        ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "other")


def test_a_layer_that_writes_elsewhere(offline: World, tmp_path: Path) -> None:
    offline.image({f"{str(labels.SOURCES).lstrip('/')}/../../../../../escaped": b"mine", **sources(offline)})
    with pytest.raises(StackError, match="writes outside the image"):
        ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "found")
    assert not (tmp_path / "found").exists()


@pytest.mark.parametrize(
    "files",
    [
        {"": b"", "pins.toml": b""},
        {"pins.toml": b"", "pins.toml/inner": b""},
        {"a" * 300: b""},
        {"a\x01" + "/b" * 3000: b""},
    ],
)
def test_sources_that_no_folder_can_have(offline: World, tmp_path: Path, files: dict[str, bytes]) -> None:
    below = str(labels.SOURCES).lstrip("/")
    offline.image({f"{below}/{name}".rstrip("/"): data for name, data in files.items()})
    with pytest.raises(StackError, match=r"cannot be unpacked .*do not use this image"):
        ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "found")


def test_sources_that_fill_the_memory(offline: World, tmp_path: Path) -> None:
    below = str(labels.SOURCES).lstrip("/")
    offline.image({f"{below}/{number}": bytes(30 << 20) for number in range(3)})
    with pytest.raises(StackError, match="is too large for a stack"):
        ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "found")


def test_an_end_of_a_lane_is_a_stack_of_its_own(offline: World, tmp_path: Path) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text(pins.read_text() + f'\n[lane.old.vllm]\ntag = "v0.1"\ncommit = "{"e" * 40}"\n')
    found = ends.load(str(offline.root), offline.root, tmp_path / "good", "old")
    assert found.root == tmp_path / "good-lane"
    assert (found.lane, found.pins.lanes, found.pins.get("vllm").tag) == (None, (), "v0.1")
    assert digest.of(found) == digest.of(stacks.load(offline.root, "old")) != digest.of(offline.stack)
    with pytest.raises(StackError, match="unknown lane 'older'"):
        ends.load(str(offline.root), offline.root, tmp_path / "bad", "older")


def test_the_stack_in_an_image_of_a_lane_is_the_lanes(offline: World, tmp_path: Path) -> None:
    pins = offline.root / "pins.toml"
    pins.write_text(pins.read_text() + f'\n[lane.old.vllm]\ntag = "v0.1"\ncommit = "{"e" * 40}"\n')
    old = stacks.load(offline.root, "old")
    files = {f"{str(labels.SOURCES).lstrip('/')}/{name}": data for name, data in lanes.alone(old).items()}
    assert {f"stack/{name}": data for name, data in lanes.alone(old).items()} == build._sources(old)
    offline.image(files, **labels.of(old))
    found = ends.load(f"oci:{offline.layout}", offline.root, tmp_path / "found")
    assert digest.of(found) == digest.of(old)
