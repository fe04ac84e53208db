# SPDX-License-Identifier: Apache-2.0
"""The user's machine as the tests want it: no configuration of pip, uv or git, no proxy, a home of its own."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.store import repository
from stack.store.indexes import Settings, parse

from .factories import Server, serving


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "GIT_", "REQUESTS_", "CURL_", "STACK_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    place = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / ".config"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return place


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def using(server: Server) -> Settings:
    return Settings(indexes=(parse(server.index),), retries=0, timeout=5)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return repository.open(tmp_path / "cache", "pkg")
