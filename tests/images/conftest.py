# SPDX-License-Identifier: Apache-2.0
"""A registry, once a session, and a stack with images that needs none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import system
from tests.images.registry import Registry, serving
from tests.images.world import World, make

_NEED_PROGRAMS = {"registry_server", "storage", "made"}
"""Fixtures that demand programs of the system."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave a test that needs programs of the system to `make test-images`."""
    if isinstance(item, pytest.Function) and _NEED_PROGRAMS & {*item.fixturenames}:
        item.add_marker(pytest.mark.images)


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    system.demand("docker-registry", "skopeo")
    with serving(tmp_path_factory.mktemp("registry")) as one:
        yield one


@pytest.fixture
def registry(registry_server: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry, and a user who trusts it and is logged in."""
    for key, value in registry_server.environment.items():
        monkeypatch.setenv(key, value)
    return registry_server


@pytest.fixture
def world(registry: Registry, tmp_path: Path) -> World:
    """A stack whose image can be published."""
    root = tmp_path / "stack"
    root.mkdir()
    return make(root, registry.host)


@pytest.fixture
def offline(tmp_path: Path) -> World:
    """A stack whose image cannot be published: its registry does not exist."""
    root = tmp_path / "stack"
    root.mkdir()
    return make(root, "registry.invalid")
