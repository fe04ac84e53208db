# SPDX-License-Identifier: Apache-2.0
"""`spark-stack up`, `update`, `rollback`, `down`, `logs` and `status` against a stand-in engine and server."""

import json
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from ..cli.conftest import unwrapped
from .world import BAD, ONE, OTHER, RECIPE, TWO, World, digest, plenty


def test_up(world: World) -> None:
    ran = world.run(*world.up())
    assert ran.code == 0, ran
    lines = ran.out.splitlines()
    assert lines[0] == f"{RECIPE} serves at http://127.0.0.1:{world.port}"
    assert "kernels  MoE CPU · linear not named · attention not named · KV float32 · graphs off" in ran.out
    assert "tokens a second in one answer" in ran.out
    assert f"image    {ONE} ({digest(f'digest {ONE}')}), not verified: no --key was given" in ran.out
    assert lines[-1].strip().startswith(f"curl -s http://127.0.0.1:{world.port}/v1/chat/completions")
    known = world.known()
    assert known.now is not None and known.now.image.name == ONE
    assert (known.before, known.target, known.work) == (None, None, None)
    assert world.running() == ONE
    assert world.file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("labels", "why"),
    [
        ({}, "the container stack-server was not started by spark-stack"),
        ({"stack.setup": "0", "stack.user": "12345"}, "the container stack-server is the server of the user with the id 12345"),
    ],
)
def test_a_container_of_somebody_else_stays(world: World, labels: dict[str, str], why: str) -> None:
    file = world.engine / "containers/stack-server.json"
    file.write_text(json.dumps({"image": "sha256:theirs", "labels": labels, "env": {}}))
    for words in (world.up(), ["up"], ["down"]):
        assert why in world.run(*words).refused_by("spark-stack")
        assert file.exists()
    assert not [call for call in world.calls() if call[0] in ("stop", "rm")]
    file.unlink()
    assert world.run("up").code == 0
    assert (world.run("down").code, world.containers()) == (0, {})


def test_a_key_that_cannot_be_sent_changes_nothing(world: World) -> None:
    world.run(*world.up())
    before = world.containers()
    world.environment["VLLM_API_KEY"] = "secret\r"
    refused = world.run(*world.up(TWO)).refused_by("spark-stack")
    assert refused.startswith("the API key or token has a blank or a special character")
    assert world.containers() == before


def test_up_again_keeps_the_server(world: World) -> None:
    world.run(*world.up())
    before = world.containers()
    assert world.run(*world.up()).code == 0
    assert world.run("up").code == 0
    assert world.containers() == before
    assert sum(call[0] == "pull" for call in world.calls()) == 1


def test_up_with_another_flag_replaces_it(world: World) -> None:
    world.run(*world.up())
    before = world.containers()
    assert world.run(*world.up(ONE, "--", "--max-num-seqs", "3")).code == 0
    assert world.containers() != before
    known = world.known()
    assert known.before is not None and known.now is not None
    assert (known.before.extra, known.now.extra) == ((), ("--max-num-seqs", "3"))


@pytest.mark.parametrize("image", [BAD, OTHER])
def test_up_of_a_server_that_does_not_do(world: World, image: str) -> None:
    ran = world.run(*world.up(image), "--json")
    assert ran.code == 1
    document = json.loads(ran.out)
    assert document["serves"] is None
    assert world.containers() == {}
    assert "INFO" in Path(document["log"]).read_text()
    if image == OTHER:
        assert document["problem"] == "other kernels run than the recipe expects"
        assert any(reason.startswith("MoE: expected CPU, runs ") for reason in document["reasons"])
    assert "does not run" in world.run("status").out


def test_other_kernels_are_served_if_the_owner_says_so(world: World) -> None:
    ran = world.run(*world.up(OTHER), "--allow-fallback")
    assert ran.code == 0
    assert "MoE: expected CPU" in ran.err
    assert world.running() == OTHER


def test_update_and_rollback(world: World) -> None:
    world.run(*world.up())
    ran = world.run("update", "--image", TWO)
    assert ran.code == 0, ran
    assert world.running() == TWO
    known = world.known()
    assert known.before is not None and known.before.image.name == ONE
    ran = world.run("rollback")
    assert (ran.code, world.running()) == (0, ONE), ran
    ran = world.run("rollback")
    assert (ran.code, world.running()) == (0, TWO), ran


def test_the_old_image_keeps_a_tag_of_ours(world: World) -> None:
    world.run(*world.up())
    world.run("update", "--image", TWO)
    names = [name for file in (world.engine / "pulled").glob("*.json") for name in json.loads(file.read_text())["names"]]
    for image in (ONE, TWO):
        assert f"localhost/stack-server:{digest(f'digest {image}')[7:19]}" in names


def test_update_follows_the_tag(world: World) -> None:
    world.run(*world.up())
    assert unwrapped(world.run("update").out) == f"{ONE} is still {digest(f'digest {ONE}')}: nothing to do."
    listed = json.loads((world.engine / "images.json").read_text())
    (world.engine / "images.json").write_text(json.dumps(listed | {ONE: listed[TWO]}))
    ran = world.run("update")
    assert ran.code == 0, ran
    known = world.known()
    assert known.now is not None and known.before is not None
    assert (known.now.image.digest, known.before.image.digest) == (digest(f"digest {TWO}"), digest(f"digest {ONE}"))


@pytest.mark.parametrize("image", [BAD, OTHER])
def test_an_update_that_does_not_do_is_taken_back(world: World, image: str) -> None:
    world.run(*world.up())
    ran = world.run("update", "--image", image)
    assert ran.code == 1, ran
    assert "the server before runs again" in " ".join(ran.err.split())
    assert world.running() == ONE
    known = world.known()
    assert known.now is not None and known.now.image.name == ONE
    assert (known.before, known.target, known.work) == (None, None, None)


def test_down_and_up(world: World) -> None:
    world.run(*world.up())
    ran = world.run("down")
    assert (ran.code, world.containers()) == (0, {})
    assert world.run("down").out.startswith("No server runs.")
    assert "does not run" in world.run("status").out
    ran = world.run("up")
    assert (ran.code, world.running()) == (0, ONE), ran


def test_status_and_logs(world: World) -> None:
    assert world.run("status").out.startswith("There is no server yet.")
    world.run(*world.up())
    ran = world.run("status")
    assert ran.out.startswith(f"{RECIPE} answers\n")
    assert json.loads(world.run("status", "--json").out)["condition"] == "answers"
    document = json.loads(world.run("logs", "--json").out)
    assert any("Application startup complete" in line for line in document["lines"])


def test_without_a_server(world: World) -> None:
    for verb in ("up", "update", "rollback", "logs"):
        ran = world.run(verb)
        assert ran.code == 2, ran
        assert "spark-stack" in ran.err


@pytest.mark.parametrize("options", [("--port", "8001"), ("--image", TWO), ("--open",), ("--allow-fallback",)])
def test_options_without_a_recipe_are_refused(world: World, options: tuple[str, ...]) -> None:
    world.run(*world.up())
    ran = world.run("up", *options)
    assert (ran.code, "'RECIPE'" in ran.err) == (2, True), ran


def test_an_api_key_stands_nowhere_but_in_the_container(world: World) -> None:
    world.environment["VLLM_API_KEY"] = "open-sesame"
    ran = world.run(*world.up(), "--open")
    assert ran.code == 0, ran
    assert "open-sesame" not in ran.out + ran.err + world.file.read_text() + (world.engine / "calls").read_text()
    assert world.containers()["stack-server"]["env"]["VLLM_API_KEY"] == "open-sesame"
    before = world.containers()
    world.environment["VLLM_API_KEY"] = "another"
    assert world.run("up").code == 0
    assert world.containers() != before


def test_other_machines_need_a_key(world: World) -> None:
    ran = world.run(*world.up(), "--open")
    assert (ran.code, "VLLM_API_KEY is not set" in ran.err) == (2, True)


def test_a_full_disk_at_the_engine(world: World) -> None:
    world.run(*world.up())
    world.environment["FAKE_FULL"] = "all"
    ran = world.run("update", "--image", TWO)
    assert ran.code == 2, ran
    assert "make room on the disk" in ran.err
    assert world.running() == ONE
    del world.environment["FAKE_FULL"]
    ran = world.run("update")
    assert (ran.code, world.running()) == (0, TWO), ran


def test_a_port_that_is_taken(world: World) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", world.port))
        other.listen()
        ran = world.run(*world.up())
    assert ran.code == 2, ran
    assert f"port {world.port} of 127.0.0.1 is in use" in ran.err


def test_dry_run(world: World) -> None:
    ran = world.run(*world.up(), "--dry-run")
    assert ran.code == 0, ran
    assert ran.out.startswith("docker run --detach")
    for word in ("--restart=unless-stopped", "--cap-drop=ALL", f"--publish=127.0.0.1:{world.port}:{world.port}", "vllm serve"):
        assert word in ran.out
    assert not world.file.exists()


def test_too_little_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.owner.world.plenty", lambda: replace(plenty(), available=3 * 10**9, free=10**9, cache=2 * 10**9))
    ran = world.run(*world.up())
    assert ran.code == 2, ran
    assert f"recipe {RECIPE} takes 5 GB, and 3 GB of 1000 GB are available" in ran.err
    assert world.containers() == {}


def test_memory_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([3 * 10**9, 3 * 10**9])
    monkeypatch.setattr("tests.owner.world.plenty", lambda: replace(plenty(), available=next(looks, 10**12)))
    assert world.run(*world.up(), "--wait-for-memory", "60").code == 0


def test_the_old_server_comes_back_if_the_new_one_finds_no_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(*world.up())
    looks = iter([3 * 10**9])
    monkeypatch.setattr("tests.owner.world.plenty", lambda: replace(plenty(), available=next(looks, 10**12)))
    ran = world.run("update", "--image", TWO)
    assert (ran.code, world.running()) == (1, ONE), ran
    assert "takes 5 GB" in ran.err


def test_another_engine(world: World) -> None:
    (world.folder / "bin/podman").symlink_to("docker")
    world.run(*world.up())
    ran = world.run(*world.up(ONE, "--engine", "podman"))
    assert (ran.code, world.running()) == (2, ONE)
    assert "the server is a container of docker: leave --engine out, or call spark-stack down first" in ran.err
    world.run("down")
    ran = world.run(*world.up(ONE, "--engine", "podman"))
    assert (ran.code, world.known().engine) == (0, "podman"), ran


def test_the_old_image_is_gone(world: World) -> None:
    world.run(*world.up())
    world.run("update", "--image", TWO)
    (world.engine / f"pulled/{digest(f'id {ONE}')[7:]}.json").unlink()
    ran = world.run("rollback")
    assert (ran.code, world.running()) == (0, ONE), ran


def test_no_engine(world: World) -> None:
    (world.folder / "bin/docker").unlink()
    world.environment["PATH"] = str(world.folder / "bin")
    ran = world.run(*world.up())
    assert ran.code == 2
    assert ran.err.startswith("spark-stack: no container engine is here: install docker")


def test_an_engine_that_refuses(world: World) -> None:
    refusal = 'echo "permission denied while trying to connect to the docker API at unix:///var/run/docker.sock" >&2; exit 1'
    (world.folder / "bin/docker").write_text(f"#!/bin/sh\n{refusal}\n")
    world.environment["PATH"] = str(world.folder / "bin")
    ran = world.run(*world.up())
    assert ran.code == 2
    assert "sudo usermod -aG docker $USER" in ran.err


def test_a_container_that_the_owner_has_stopped(world: World) -> None:
    world.run(*world.up())
    pid = world.pid("stack-server")
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    assert world.run("status").out.startswith(f"{RECIPE} has ended with 1")
    assert (world.run("up").code, world.running()) == (0, ONE)


def test_hostile_state(world: World) -> None:
    world.run(*world.up())
    world.file.write_text(world.file.read_text().replace('"stack-server"', '"--privileged"'))
    for verb in ("up", "update", "rollback", "down", "status", "logs"):
        ran = world.run(verb)
        assert ran.code == 2, (verb, ran)
        assert "container is '--privileged'" in ran.err
