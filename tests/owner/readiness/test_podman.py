# SPDX-License-Identifier: Apache-2.0
"""A real podman, as it describes itself."""

import pytest

from stack.owner.readiness import engine

from ... import system

pytestmark = [pytest.mark.images, pytest.mark.slow]


def test_a_real_podman_describes_itself() -> None:
    system.demand("podman")
    found = engine.read("podman", ())
    assert (found.name, found.problem, found.denied) == ("podman", "", False)
    assert found.version[:1].isdigit()
    assert found.storage is not None
    assert found.storage.is_absolute()
    assert not found.gives_gpus
    refused = engine.tried(found, "localhost/no-such-image")
    assert refused.seen is None
    assert refused.refused
