# SPDX-License-Identifier: Apache-2.0
"""`spark-stack` with a real engine (podman), real images from a real registry, and a stand-in server in them."""

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from stack.owner import state

from .. import system
from ..images import bases
from ..images.conftest import registry_server
from ..images.registry import Registry
from . import containers
from .containers import Podman
from .test_killed import killed
from .world import RECIPE, World

__all__ = ["registry_server"]
pytestmark = pytest.mark.images


@pytest.fixture(scope="module")
def engine(registry_server: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    system.demand(*bases.PROGRAMS, "catatonit")
    with containers.podman(tmp_path_factory.mktemp("podman"), registry_server) as made:
        yield made


@pytest.fixture
def owner(engine: Podman, world: World) -> Iterator[World]:
    """An owner whose engine is podman."""
    world.environment.update(engine.environment)
    world.environment["PATH"] = os.environ["PATH"]
    yield world
    podman(world, "rm", "--all", "--force", "--time=0")


def podman(owner: World, *words: str) -> str:
    done = subprocess.run(
        ["podman", *words], env={**os.environ, **owner.environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def up(owner: World, image: str, *more: str) -> list[str]:
    return [*owner.up(image, *more), "--engine", "podman"]


def test_the_whole_way(owner: World, engine: Podman) -> None:
    one, two = f"{engine.repository}:one", f"{engine.repository}:two"
    ran = owner.run(*up(owner, one))
    assert ran.code == 0, ran
    assert f"image    {one} ({engine.digests['one']})" in ran.out
    described = json.loads(podman(owner, "container", "inspect", "stack-server"))[0]
    assert described["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert described["HostConfig"]["CapDrop"]
    assert owner.run("status").out.startswith(f"{RECIPE} answers")
    ran = owner.run("update", "--image", two)
    assert ran.code == 0, ran
    known = owner.known()
    assert known.now is not None and known.before is not None
    assert (known.now.image.digest, known.before.image.digest) == (engine.digests["two"], engine.digests["one"])
    podman(owner, "image", "prune", "--force")
    ran = owner.run("rollback")
    assert ran.code == 0, ran
    ran = owner.run("update", "--image", f"{engine.repository}:bad")
    assert ran.code == 1, ran
    assert owner.run("status").out.startswith(f"{RECIPE} answers")
    known = owner.known()
    assert known.now is not None and known.now.image.digest == engine.digests["one"]
    document = json.loads(owner.run("logs", "--json").out)
    assert any("Application startup complete" in line for line in document["lines"])
    assert owner.run("down").code == 0
    assert podman(owner, "ps", "--all", "--quiet") == ""
    assert owner.run("up").code == 0
    assert state.read(owner.file) is not None


MOMENTS = 6


def test_killed_beside_a_real_engine(owner: World, engine: Podman) -> None:
    """Killed with the command of the engine that it waits for, or without it: the next call goes on."""
    one, two = f"{engine.repository}:one", f"{engine.repository}:two"
    began = time.monotonic()
    assert owner.run(*up(owner, one)).code == 0
    longest = time.monotonic() - began
    for moment in range(MOMENTS):
        killed(owner, ["update", "--image", two], longest * (moment + 1) / MOMENTS, whole=moment % 2 == 0)
        assert owner.known().now is not None
        ran = owner.run("update", "--image", two)
        assert ran.code == 0, (moment, ran)
        known = owner.known()
        assert known.now is not None and known.before is not None
        assert (known.now.image.digest, known.before.image.digest) == (engine.digests["two"], engine.digests["one"])
        assert owner.run("down").code == 0
        killed(owner, up(owner, one), longest * (moment + 1) / MOMENTS, whole=moment % 2 == 1)
        ran = owner.run(*up(owner, one))
        assert ran.code == 0, (moment, ran)
        assert podman(owner, "ps", "--all", "--quiet").count("\n") == 0
