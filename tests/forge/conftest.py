# SPDX-License-Identifier: Apache-2.0
"""Forges on the loopback interface, for tests of their clients and of what uses them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..carry.world import home
from . import contract, forgejo_contract, gitlab_table
from .contract import Contract
from .fake_forgejo import ForgejoHub
from .fake_github import Hub, Repo, serving
from .fake_gitlab import GitLabHub

__all__ = ["home"]

TOKEN = "ghp_ThisIsMySecretTokenAndNobodyElses00"
READER = "ghp_ReadsOnly"
UP = "up/gamma"
MINE = "me/gamma"


KINDS = ("github", "gitlab", "forgejo")
VARIABLES = {
    "github": ("GITHUB_API_URL", "GH_TOKEN"),
    "gitlab": ("GITLAB_API_URL", "GITLAB_TOKEN"),
    "forgejo": ("FORGEJO_API_URL", "FORGEJO_TOKEN"),
}
"""The variables with the address of the API and the token, by the kind of forge."""
HUBS = {"github": Hub, "gitlab": GitLabHub, "forgejo": ForgejoHub}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave a test that needs a description of an API that npm brings to `make test-images`. That of GitLab is a table here."""
    if not isinstance(item, pytest.Function):
        return
    kind = item.callspec.params.get("kind", "github") if hasattr(item, "callspec") else "github"
    if "github_contract" in item.fixturenames or ("hub" in item.fixturenames and kind != "gitlab"):
        item.add_marker(pytest.mark.images)


@pytest.fixture
def kind() -> str:
    """The kind of forge; a test may name others by its parameters."""
    return "github"


@pytest.fixture(scope="session")
def github_contract() -> Contract:
    return contract.load()


def contract_of(kind: str) -> Any:
    """The description of a forge's API."""
    return gitlab_table.CONTRACT if kind == "gitlab" else forgejo_contract.load() if kind == "forgejo" else contract.load()


@pytest.fixture
def hub(kind: str, request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A forge with an upstream, a fork of it, and the user `me`; no other token than those of the test is around."""
    for name in ("GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for names in VARIABLES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    described = request.getfixturevalue("github_contract") if kind == "github" else contract_of(kind)
    with serving(described, HUBS[kind]) as served:
        served.repositories = {UP: Repo(), MINE: Repo(parent=UP)}
        served.tokens = {TOKEN: "me", READER: "me"}
        served.readers = {READER}
        for name, value in zip(VARIABLES[kind], (served.url, TOKEN), strict=True):
            monkeypatch.setenv(name, value)
        yield served
        assert served.faults == []
