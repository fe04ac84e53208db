# SPDX-License-Identifier: Apache-2.0
"""The user's machine as the tests want it; GitHub; a git server, and somebody who contributes to an upstream there."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..carry.world import home, isolate
from ..forge.conftest import MINE, READER, TOKEN, UP, github_contract, hub, kind, pytest_itemcollected
from . import forge as forges
from .forge import Forge
from .world import Contributor, contributor, fill

__all__ = ["MINE", "READER", "TOKEN", "UP", "github_contract", "home", "hub", "kind", "pytest_itemcollected"]


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
