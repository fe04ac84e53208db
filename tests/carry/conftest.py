# SPDX-License-Identifier: Apache-2.0
"""The user's machine as the tests want it, and git repositories to work in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.store import git
from stack.store.objects import Objects

from .trees import Scratch
from .world import home, template, world

__all__ = ["home", "scratch", "template", "world"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scratch]:
    """A repository for the tests of a module; each of them leaves packs, and git searches all of them for each object."""
    place: Path = tmp_path_factory.mktemp("scratch") / "git"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    with Objects(place) as objects:
        yield Scratch(place, objects)
