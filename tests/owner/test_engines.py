# SPDX-License-Identifier: Apache-2.0
"""`spark-stack` with real engines (podman, docker), real images from a real registry, and a stand-in server in them."""

import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from stack.owner import state_file

from .. import system
from ..images import bases
from ..images.conftest import registry_server
from ..images.registry import Registry
from . import containers
from .containers import RealEngine
from .test_killed import killed
from .world import RECIPE, World

__all__ = ["registry_server"]
pytestmark = pytest.mark.images


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(
    request: pytest.FixtureRequest, registry_server: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealEngine]:
    system.demand(*bases.PROGRAMS, "catatonit")
    begun = {"podman": containers.podman, "docker": containers.docker}[request.param]
    with begun(tmp_path_factory.mktemp(request.param), registry_server) as made:
        yield made


@pytest.fixture
def owner(engine: RealEngine, world: World) -> Iterator[World]:
    """An owner whose engine is real."""
    world.environment.update(engine.environment)
    world.environment["PATH"] = os.environ["PATH"]
    yield world
    world.run("down")


def call(owner: World, engine: RealEngine, *words: str) -> str:
    """Run a command of the engine."""
    done = subprocess.run(
        [engine.name, *words], env={**os.environ, **owner.environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def up(owner: World, engine: RealEngine, image: str, *more: str) -> list[str]:
    return [*owner.up(image, *more), "--engine", engine.name]


def test_the_whole_way(owner: World, engine: RealEngine) -> None:
    one, two = f"{engine.repository}:one", f"{engine.repository}:two"
    ran = owner.run(*up(owner, engine, one))
    assert ran.code == 0, ran
    assert f"image    {one} ({engine.digests['one']})" in ran.out
    described = json.loads(call(owner, engine, "container", "inspect", "stack-server"))[0]
    assert described["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"
    assert described["HostConfig"]["CapDrop"]
    assert owner.run("status").out.startswith(f"{RECIPE} answers")
    ran = owner.run("update", "--image", two)
    assert ran.code == 0, ran
    known = owner.known()
    assert known.now is not None and known.before is not None
    assert (known.now.image.digest, known.before.image.digest) == (engine.digests["two"], engine.digests["one"])
    call(owner, engine, "image", "prune", "--force")
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
    assert call(owner, engine, "ps", "--all", "--quiet") == ""
    assert owner.run("up").code == 0
    assert state_file.read(owner.file) is not None


MOMENTS = 6


def test_killed_beside_a_real_engine(owner: World, engine: RealEngine) -> None:
    """Killed with the command of the engine that it waits for, or without it: the next call goes on."""
    one, two = f"{engine.repository}:one", f"{engine.repository}:two"
    began = time.monotonic()
    assert owner.run(*up(owner, engine, one)).code == 0
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
        killed(owner, up(owner, engine, one), longest * (moment + 1) / MOMENTS, whole=moment % 2 == 1)
        ran = owner.run(*up(owner, engine, one))
        assert ran.code == 0, (moment, ran)
        assert call(owner, engine, "ps", "--all", "--quiet").count("\n") == 0


_TRIES = 400


def test_a_name_that_a_killed_podman_left_taken(owner: World, engine: RealEngine) -> None:
    """A killed `podman create` may leave a name that `podman run` refuses and `podman rm` does not find."""
    if engine.name != "podman":
        pytest.skip("not run with docker, whose daemon is not killed with its client")
    one = f"{engine.repository}:one"
    call(owner, engine, "pull", one)
    assert any(_half_made(owner, engine, one, 0.004 * (count % 100)) for count in range(_TRIES))
    ran = owner.run(*up(owner, engine, one))
    assert ran.code == 0, ran


def _half_made(owner: World, engine: RealEngine, image: str, delay: float) -> bool:
    """Kill `podman create` after some seconds; return whether the name is taken and no container has it."""
    words, environment = ["podman", "create", "--name=stack-server", image], {**os.environ, **owner.environment}
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(delay)
        process.kill()
    inspected = subprocess.run(
        ["podman", "container", "inspect", "stack-server"], env=environment, capture_output=True, check=False
    )
    if inspected.returncode == 0:
        call(owner, engine, "rm", "--force", "stack-server")
        return False
    listed = json.loads(call(owner, engine, "ps", "--all", "--external", "--format=json"))
    return any(one["Names"] == ["stack-server"] for one in listed)
