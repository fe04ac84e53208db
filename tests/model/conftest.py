# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from .factories import FILES, git, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A stack in order."""
    write(tmp_path, FILES)
    return tmp_path


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty git repository."""
    place = tmp_path_factory.mktemp("repository")
    git("init", "--quiet", "--bare", cwd=place)
    return place
