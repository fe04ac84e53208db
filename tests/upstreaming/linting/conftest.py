# SPDX-License-Identifier: Apache-2.0
from collections.abc import Iterator

import pytest

from stack.store import git
from stack.store.objects import Objects

from .factories import Making


@pytest.fixture(scope="session")
def making(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Making]:
    place = tmp_path_factory.mktemp("linting") / "git"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    with Objects(place) as objects:
        yield Making(objects)


@pytest.fixture(autouse=True)
def home() -> None:
    """Nothing of the user's machine is put aside, as it is for the tests beside these: the tools come from the index that pip knows."""
