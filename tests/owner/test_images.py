# SPDX-License-Identifier: Apache-2.0
"""An image comes to the engine by the digest that was verified, with the attestations of a real registry."""

import json
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.base.progress import silent
from stack.images import attached, layout, referrers
from stack.images.registry_client import RegistryClient
from stack.owner import images
from stack.owner.engine import Engine

from ..images.conftest import registry, registry_server
from ..images.registry import Registry
from ..images.world import World as Publisher
from ..images.world import make
from .world import ONE, World, digest

__all__ = ["registry", "registry_server"]
DOCKER = Engine("docker")


@pytest.fixture
def machine(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return world


def pulls(machine: World) -> list[str]:
    return [call[-1] for call in machine.calls() if call[0] == "pull"]


@pytest.fixture
def published(registry: Registry, tmp_path: Path) -> Publisher:
    """A stack with its key, whose image is published as `owner:1`."""
    root = tmp_path / "stack"
    root.mkdir()
    made = make(root, registry.host)
    made.publish("owner:1", made.verdict(made.image()))
    return made


@pytest.mark.images
def test_what_is_verified_is_what_is_pulled(published: Publisher, machine: World) -> None:
    name = f"{published.host}/owner:1"
    pinned = published.image()
    listed = {name: {"digest": pinned, "id": digest("id")}}
    (machine.engine / "images.json").write_text(json.dumps(listed))
    key = published.root / "release.pub.pem"
    made = images.bring(DOCKER, name, key, silent)
    assert (made.digest, made.key) == (pinned, str(key))
    assert pulls(machine) == [f"{published.host}/owner@{pinned}"]


@pytest.mark.images
def test_another_key_brings_nothing(published: Publisher, machine: World) -> None:
    with pytest.raises(StackError, match=r"is not verified \(signature: none of .* is signed with this key"):
        images.bring(DOCKER, f"{published.host}/owner:1", published.root / "other.pub.pem", silent)
    assert not (machine.engine / "calls").exists()


@pytest.mark.images
@pytest.mark.parametrize("form", ["bundles", "earlier"])
def test_one_form_of_attestations_is_enough(published: Publisher, machine: World, form: str) -> None:
    name, pinned = f"{published.host}/owner:1", published.image()
    (machine.engine / "images.json").write_text(json.dumps({name: {"digest": pinned, "id": digest("id")}}))
    gone = referrers.tag(pinned) if form == "earlier" else attached.attestations(pinned)
    with RegistryClient(published.name("owner")) as client:
        empty = {"schemaVersion": 2, "mediaType": layout.MANIFEST, "config": layout.described(b"{}", referrers.EMPTY)}
        index = {"schemaVersion": 2, "mediaType": layout.INDEX, "manifests": []}
        kind, content = (layout.INDEX, index) if form == "earlier" else (layout.MANIFEST, empty | {"layers": []})
        client.put_manifest(gone, layout.encode(content), kind)
    key = published.root / "release.pub.pem"
    assert images.bring(DOCKER, name, key, silent).digest == pinned
    with pytest.raises(StackError, match="is not verified"):
        images.bring(DOCKER, name, published.root / "other.pub.pem", silent)


def test_a_tag_is_pinned_to_its_digest(machine: World) -> None:
    made = images.bring(DOCKER, ONE, None, silent)
    assert (made.name, made.digest, made.id, made.key) == (ONE, digest(f"digest {ONE}"), digest(f"id {ONE}"), None)


def test_what_is_here_is_not_pulled(machine: World) -> None:
    pinned = f"{ONE.rpartition(':')[0]}@{digest(f'digest {ONE}')}"
    for _ in range(2):
        assert images.bring(DOCKER, pinned, None, silent).id == digest(f"id {ONE}")
    assert pulls(machine) == [pinned]


def test_no_such_image(machine: World) -> None:
    with pytest.raises(StackError, match=r"docker pull failed: .*manifest unknown"):
        images.bring(DOCKER, "registry.example/none:1", None, silent)


@pytest.mark.parametrize("name", ["localhost/mine:1", "oci:none"])
def test_what_is_not_here(machine: World, name: str) -> None:
    with pytest.raises(StackError, match=r"no image|missing|no image index|is not"):
        images.bring(DOCKER, name, None, silent)


def test_layers_are_counted(machine: World) -> None:
    told: list[tuple[int, int | None]] = []
    images.bring(DOCKER, ONE, None, lambda _step, done=0, total=None, /: told.append((done, total)))
    assert told[-1] == (3, 3)
