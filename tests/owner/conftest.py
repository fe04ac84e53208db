# SPDX-License-Identifier: Apache-2.0
"""An owner's machine for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .world import World, made


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with made(tmp_path / "machine") as one:
        yield one
