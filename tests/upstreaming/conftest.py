# SPDX-License-Identifier: Apache-2.0
"""The user's machine as the tests want it; GitHub; a git server, and somebody who contributes to an upstream there."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..carry.world import home, isolate
from . import contract
from . import forge as forges
from .contract import Contract
from .fake_github import Hub, Repo, serving
from .forge import Forge
from .world import Contributor, contributor, fill

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


@pytest.fixture(scope="session")
def contributed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("contributed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        (place / "home").mkdir()
        isolate(monkeypatch, place / "home", place / "simple")
        fill(place, place / "home")
    return place


@pytest.fixture
def forge(tmp_path: Path, contributed: Path) -> Iterator[Forge]:
    shutil.copytree(contributed / "forge", tmp_path / "forge")
    with forges.serving(tmp_path / "forge") as running:
        yield running


@pytest.fixture
def me(tmp_path: Path, home: Path, contributed: Path, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> Contributor:
    """A copy of all of it of their own."""
    isolate(monkeypatch, home, contributed / "simple")
    for name in ("stack", "cache", "upstream"):
        shutil.copytree(contributed / name, tmp_path / name, symlinks=True)
    return contributor(tmp_path, home, forge)
