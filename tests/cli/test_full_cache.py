# SPDX-License-Identifier: Apache-2.0
"""A cache that is full or read-only costs speed: verbs do the same and leave it as it is."""

import json
import re
from pathlib import Path

import pytest

from stack.store import borrowed

from ..carry.test_worktree import user_git
from ..carry.world import World
from .conftest import Stack


def content(folder: Path) -> dict[Path, bytes]:
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture(params=["warm", "cold"])
def cache(request: pytest.FixtureRequest, stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """The content of the cache, on a file system that counts as full."""
    if request.param == "warm":
        assert stack("rebase", "gamma", "--onto", "v2.2", "--with-required", "--dry-run").code == 1
    monkeypatch.setattr(borrowed, "_LEAST", 1 << 62)
    return content(world.cache)


def test_verbs_do_the_same(cache: dict[Path, bytes], stack: Stack, world: World, tmp_path: Path) -> None:
    assert stack("lint").code == 0
    assert stack("rebase", "gamma", "--onto", "v2.1", "--with-required").code == 0
    assert world.load().pins.get("gamma").tag == "v2.1"
    out = stack("checkout", "gamma", tmp_path / "out", "--json")
    assert json.loads(out.out)
    assert f"the cache {world.cache} is full" in out.err
    assert content(world.cache) == cache
    user_git(tmp_path / "out", "fsck", "--full")
    user_git(tmp_path / "out", "log", "--stat")


def test_what_a_later_command_needs_is_refused(cache: dict[Path, bytes], stack: Stack, world: World, tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    refused = stack("rebase", "gamma", "--onto", "v2.2", "--with-required", "--workspace", folder).refused()
    assert refused.startswith(f"the cache {world.cache} is full")
    # How much is free changes with whatever else the machine does.
    assert re.sub(r"\d+ MiB", "", stack("fetch").refused()) == re.sub(r"\d+ MiB", "", refused)
    assert not folder.exists()
    assert content(world.cache) == cache
