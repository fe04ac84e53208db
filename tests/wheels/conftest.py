# SPDX-License-Identifier: Apache-2.0
"""The world of `tests/carry`, with the published wheel of its upstream `gamma`."""

from pathlib import Path

import pytest

from ..carry.world import GAMMA, World, home, template, world
from ..cli.conftest import stack
from .factories import offer, wheel

__all__ = ["home", "stack", "template", "world"]

VERSION = b"__version__ = version = '2.0'\n__version_tuple__ = version_tuple = (2, 0)\n"
PUBLISHED = {
    "gamma/__init__.py": b"from ._version import __version__ as __version__\n",
    "gamma/_C.abi3.so": bytes(range(256)) * 500,
    **{path: data for path, data in GAMMA["v2.0"].items() if path.startswith("gamma/")},
    "gamma/_version.py": VERSION,
}


@pytest.fixture
def published(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the published wheels: of gamma for two machines, and for a CPU under a name of its own."""
    folder = tmp_path / "published"
    wheels = [
        wheel(folder, PUBLISHED),
        wheel(folder, PUBLISHED, tag="cp38-abi3-manylinux_2_28_aarch64", wrong_tag="cp312-cp312-linux_aarch64"),
        wheel(folder, PUBLISHED, name="gamma-pkg-cpu"),
    ]
    offer(tmp_path / "index", monkeypatch, *wheels)
    return folder
