# SPDX-License-Identifier: Apache-2.0
"""GitHub on the loopback interface, for tests of its client and of what uses it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..carry.world import home
from . import contract
from .contract import Contract
from .fake_github import Hub, Repo, serving

__all__ = ["home"]

TOKEN = "ghp_ThisIsMySecretTokenAndNobodyElses00"
READER = "ghp_ReadsOnly"
UP = "up/gamma"
MINE = "me/gamma"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave a test that needs GitHub's description of its API, which npm brings, to `make test-images`."""
    if isinstance(item, pytest.Function) and "github_contract" in item.fixturenames:
        item.add_marker(pytest.mark.images)


@pytest.fixture(scope="session")
def github_contract() -> Contract:
    return contract.load()


@pytest.fixture
def hub(github_contract: Contract, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """GitHub with an upstream, a fork of it, and the user `me`; no other token than those of the test is around."""
    for name in ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    with serving(github_contract) as served:
        served.repositories = {UP: Repo(), MINE: Repo(parent=UP)}
        served.tokens = {TOKEN: "me", READER: "me"}
        served.readers = {READER}
        monkeypatch.setenv("GITHUB_API_URL", served.url)
        monkeypatch.setenv("GH_TOKEN", TOKEN)
        yield served
        assert served.faults == []
