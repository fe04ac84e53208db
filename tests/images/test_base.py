# SPDX-License-Identifier: Apache-2.0
"""`stack pins set base`: the digest that a registry's own bytes have."""

import json
from pathlib import Path

import pytest

from stack.images import skopeo
from stack.model import digest

from ..carry.world import World, home, template, world
from ..cli.conftest import Stack, stack
from . import factories
from .registry import Registry, free_port

__all__ = ["home", "stack", "template", "world"]


@pytest.mark.parametrize("platforms", [1, 2])
def test_a_tag_is_pinned_to_its_digest_and_taken_back(
    stack: Stack, world: World, registry: Registry, tmp_path: Path, platforms: int
) -> None:
    made = factories.image(tmp_path / "image", {}) if platforms == 1 else factories.multi(tmp_path / "image", {})[0]
    name = f"{registry.host}/bases/cuda{platforms}"
    skopeo.copy(f"oci:{tmp_path / 'image'}", f"{name}:13.0", all_=True)
    before, own = (world.root / "pins.toml").read_text(), digest.of(world.load())
    assert json.loads(stack("pins", "show", "--json").out)["base"] is None
    ran = stack("pins", "set", "base", f"{name}:13.0")
    words = ran.out.split()
    after = "pins.toml, which git tracks, says so; `stack undo` takes it back"
    assert (ran.code, words) == (0, f"the base image is {name}:13.0 at {made}; {after}".split())
    assert (world.root / "pins.toml").read_text() == f'{before}\n[base]\nimage = "{name}"\ntag = "13.0"\ndigest = "{made}"\n'
    assert json.loads(stack("pins", "show", "--json").out)["base"] == {"image": name, "tag": "13.0", "digest": made}
    assert f"base image {name}:13.0 {made}" in stack("pins", "show").out
    assert digest.of(world.load()) == own
    again = json.loads(stack("pins", "set", "base", f"docker://{name}:13.0", "--json").out)
    assert again == {
        "schema": "stack/pins-set-base/1",
        "lane": None,
        "set": True,
        "base": {"image": name, "tag": "13.0", "digest": made},
        "unmet": [],
    }
    assert "undo" not in stack("pins", "set", "base", f"{name}:13.0").out
    assert stack("undo").code == 0
    assert (world.root / "pins.toml").read_text() == before


def test_what_is_not_there_is_not_pinned(stack: Stack, world: World, registry: Registry) -> None:
    before = (world.root / "pins.toml").read_text()
    assert "does not exist" in stack("pins", "set", "base", f"{registry.host}/bases/none:1").refused()
    assert "cannot be reached" in stack("pins", "set", "base", f"127.0.0.1:{free_port()}/bases/none:1").refused()
    for text in ("oci:folder:tag", "some/image", "some/image@sha256:" + "0" * 64, "--tls-verify=false", "a b:1"):
        assert "write" in stack("pins", "set", "--", "base", text).refused()
    assert (world.root / "pins.toml").read_text() == before
