# SPDX-License-Identifier: Apache-2.0
"""A fork's maintainer: their stack in a repository of their own at a forge, and an upstream with releases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.store import git

from ..carry.world import isolate
from ..forge.conftest import github_contract, home, hub, kind, pytest_itemcollected
from ..forge.fake_github import Hub, Repo
from ..upstreaming.forge import serving
from .world import OWN, Branches, Maintainer, maintainer

__all__ = ["github_contract", "home", "hub", "kind", "pytest_itemcollected"]


@pytest.fixture
def me(tmp_path: Path, home: Path, hub: Hub, kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Maintainer]:
    isolate(monkeypatch, home)
    with serving(tmp_path / "forge") as forge:
        made = maintainer(tmp_path, home, forge, hub)
        git.run(["config", "stack.forge", kind], cwd=made.work)
        hub.repositories[OWN] = Repo(branches=Branches(made.mine))
        yield made
