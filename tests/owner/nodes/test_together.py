# SPDX-License-Identifier: Apache-2.0
"""A server on two machines: started, shown and stopped from the first. The second is a folder that a program reaches in place of ssh."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..world import BAD, ONE, TWO, World, end_servers, images
from .spread import prepare, up

_SSH = """#!/bin/sh
echo "$*" >> "{folder}/ssh.log"
while [ "$1" != -- ]; do shift; done
[ -e "{folder}/off" ] && {{ echo "ssh: connect to host $2 port 22: No route to host" >&2; exit 255; }}
FAKE_ENGINE="{folder}/engine" exec sh -c "$3"
"""
_RSYNC = """#!/bin/sh
echo "$*" >> "{folder}/rsync.log"
[ -e "{folder}/full" ] && {{ echo 'rsync: No space left on device (28)' >&2; exit 11; }}
printf '  1,000  50%%\\r  2,000 100%%\\n'
"""


@dataclass(frozen=True, slots=True)
class Other:
    """The second machine."""

    folder: Path

    def containers(self) -> list[Path]:
        return sorted((self.folder / "engine/containers").glob("[!.]*.json"))

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.folder / "engine/calls").read_text().splitlines()]

    def did(self, verb: str) -> list[list[str]]:
        return [words for words in self.calls() if words[0] == verb]


@pytest.fixture(name="other")
def _other(world: World) -> Iterator[Other]:
    folder = world.folder / "other"
    for name in ("engine/pulled", "engine/containers", "engine/volumes"):
        (folder / name).mkdir(parents=True)
    (folder / "engine/images.json").write_text(json.dumps(images()))
    (folder / "engine/calls").touch()
    for name, text in (("ssh", _SSH), ("rsync", _RSYNC)):
        program = world.folder / "bin" / name
        program.write_text(text.format(folder=folder))
        program.chmod(0o755)
    try:
        yield Other(folder)
    finally:
        end_servers(folder / "engine")


@pytest.fixture(name="model")
def _model(world: World) -> Path:
    return prepare(world, "spark-b", ("192.168.177.11", "192.168.177.12"))


def test_both_start_are_shown_and_stop(world: World, other: Other, model: Path) -> None:
    ran = world.run(*up(world, model))
    assert ran.code == 0, ran
    [there] = other.did("run")
    assert "--headless" in there
    assert {"--network=host", "--device=/dev/infiniband", "--no-healthcheck"} <= {*there}
    assert "--env=VLLM_HOST_IP=192.168.177.12" in there
    here = next(words for words in world.calls() if words[0] == "run")
    assert "--env=VLLM_HOST_IP=192.168.177.11" in here
    assert "--headless" not in here
    assert not any(word.startswith("--publish") for word in here)
    copied = (other.folder / "rsync.log").read_text()
    assert "HostName=192.168.177.12" in copied
    assert "--protect-args" in copied  # rsync's other side reads names by a shell otherwise
    assert f"{model.parents[1]}/ spark-b:{model.parents[1]}/" in copied

    shown = world.run("status")
    assert "spark-b  runs" in shown.out
    lines = world.run("logs", "--no-follow").out.splitlines()
    assert {line.partition(" | ")[0].strip() for line in lines} == {"this machine", "spark-b"}

    assert world.run("down").code == 0
    assert (world.containers(), other.containers()) == ({}, [])


def test_a_second_up_copies_and_starts_nothing(world: World, other: Other, model: Path) -> None:
    assert world.run(*up(world, model)).code == 0
    before = len(other.did("run")), len(other.did("load"))
    assert before == (1, 1)
    assert world.run("up").code == 0
    assert (len(other.did("run")), len(other.did("load"))) == before


def test_an_update_starts_both_anew_and_a_rollback_copies_nothing(world: World, other: Other, model: Path) -> None:
    assert world.run(*up(world, model, image=ONE)).code == 0
    assert world.run("update", "--image", TWO).code == 0
    assert (len(other.did("run")), len(other.did("load"))) == (2, 2)
    assert world.run("rollback").code == 0
    assert (len(other.did("run")), len(other.did("load"))) == (3, 2)
    assert images()[ONE]["id"] in other.did("run")[-1]


def test_an_update_that_does_not_do_comes_back_on_both(world: World, other: Other, model: Path) -> None:
    assert world.run(*up(world, model, image=ONE)).code == 0
    assert world.run("update", "--image", BAD).code == 1
    assert images()[ONE]["id"] in other.did("run")[-1]
    assert "--- spark-b\n" in (world.folder / "state/stack/failed-start.log").read_text()


def test_a_machine_that_is_off(world: World, other: Other, model: Path) -> None:
    (other.folder / "off").touch()
    assert "No route to host" in world.run(*up(world, model)).refused_by("spark-stack")
    assert world.containers() == {}
    (other.folder / "off").unlink()
    assert world.run("up", *up(world, model)[1:]).code == 0
    (other.folder / "off").touch()
    assert "spark-b  does not run" in world.run("status").out
    assert world.run("down").code == 2
    assert world.containers() == {}
    (other.folder / "off").unlink()
    assert world.run("down").code == 0
    assert other.containers() == []


def test_nodes_that_were_forgotten_do_not_go_on_alone(world: World, other: Other, model: Path) -> None:
    assert world.run(*up(world, model)).code == 0
    file = world.folder / "state/stack/nodes.json"
    kept = file.read_bytes()
    file.unlink()
    for words in (["down"], ["update"]):
        said = world.run(*words).refused_by("spark-stack")
        assert said.startswith("the server runs on several machines, and which ones is not known any more")
    assert world.containers() and other.containers()
    file.write_bytes(kept)
    assert world.run("down").code == 0
    assert (world.containers(), other.containers()) == ({}, [])
    file.unlink()
    assert world.run("down").code == 0


def test_a_model_that_does_not_arrive(world: World, other: Other, model: Path) -> None:
    (other.folder / "full").touch()
    said = world.run(*up(world, model)).refused_by("spark-stack")
    assert "the model does not arrive on spark-b: rsync: No space left on device (28)" in said
    assert other.containers() == []
    (other.folder / "full").unlink()
    assert world.run(*up(world, model)).code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gpt-oss-120b-spark", "--nodes", "2"], "is for 1 machine, not 2: for 2 there is gpt-oss-120b-2-sparks"),
        (["gpt-oss-120b-4-sparks"], "is for 4 machines, and setup knows 2: spark-stack setup NODE..."),
    ],
)
def test_recipes_for_other_numbers(world: World, other: Other, model: Path, words: list[str], expected: str) -> None:
    assert expected in world.run("up", *words, "--image", ONE).refused_by("spark-stack")
    assert not other.calls()


def test_without_a_setup(world: World) -> None:
    said = world.run("up", "gpt-oss-120b-2-sparks", "--image", ONE).refused_by("spark-stack")
    assert "is for 2 machines, and no setup has found them" in said
    shown = world.run("up", "gpt-oss-120b-2-sparks", "--image", ONE, "--dry-run")
    assert "--network=host" in shown.out
