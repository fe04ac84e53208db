# SPDX-License-Identifier: Apache-2.0
"""`up` names all that is missing at once, and `--dry-run` shows what is known."""

import json
import shutil
import socket
from dataclasses import replace

import pytest

from stack.owner.readiness import places

from .world import ONE, RECIPE, World, digest, plenty


def test_everything_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.folder / "bin/docker").unlink()
    world.environment["PATH"] = str(world.folder / "bin")
    world.environment["VLLM_API_KEY"] = ""
    (world.model / "config.json").unlink()
    monkeypatch.setattr("tests.owner.world.plenty", lambda: replace(plenty(), available=10**9, free=10**9, cache=0))
    with socket.socket() as other:
        other.bind(("0.0.0.0", world.port))
        other.listen()
        ran = world.run(*world.up(None, "--open"), "--json")
    assert ran.code == 2
    document = json.loads(ran.out)
    problems = [each["problem"] for each in document["errors"]]
    expected = (
        "no container engine",
        "no image is named",
        "VLLM_API_KEY is not set",
        "has no config.json",
        "takes 5 GB",
        "in use",
    )
    assert len(problems) == len(expected), problems
    for problem, words in zip(problems, expected, strict=True):
        assert words in problem
    assert document["problem"] == "6 things are missing"
    assert ran.err.count("spark-stack: ") == 7
    assert not world.file.exists()


def test_one_thing_is_said_as_ever(world: World) -> None:
    (world.model / "config.json").unlink()
    assert world.run(*world.up()).refused_by("spark-stack").startswith(f"{world.model} has no config.json")


def test_a_local_image_that_is_not_here(world: World) -> None:
    assert "docker has no image localhost/none:1" in world.run(*world.up("localhost/none:1")).err


def test_no_room_for_the_model(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "disk", lambda folder, present=0: places.DiskFacts(folder, 10**9, 1, present))
    world.environment["HF_HOME"] = str(world.folder / "hf")
    ran = world.run("up", "gpt-oss-20b-spark", "--image", ONE, "--allow-fallback")
    assert "the model takes" in ran.err
    world.environment["HF_HUB_OFFLINE"] = "1"
    ran = world.run("up", "gpt-oss-20b-spark", "--image", ONE, "--allow-fallback")
    assert "is not whole in the cache, and HF_HUB_OFFLINE is set" in ran.err


def test_the_own_server_gives_its_port_and_memory_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run(*world.up())
    looks = iter([10**9])
    monkeypatch.setattr("tests.owner.world.plenty", lambda: replace(plenty(), available=next(looks, 10**12)))
    ran = world.run(*world.up(ONE, "--wait-for-memory", "60", "--", "--max-num-seqs", "3"))
    assert ran.code == 0, ran


def test_a_preview_has_real_values(world: World) -> None:
    world.environment["HF_HUB_CACHE"] = str(world.folder / "hub")
    ran = world.run("up", "gpt-oss-120b-spark", "--dry-run")
    assert ran.code == 0
    assert "IMAGE stands for it" in ran.err
    assert f"would be downloaded to {world.folder}/hub/models--openai--gpt-oss-120b/snapshots/" in " ".join(ran.err.split())
    assert f"--volume={world.folder}/hub/models--openai--gpt-oss-120b:/model:ro" in ran.out
    assert "--env=STACK_KEEP_FREE=8" in ran.out
    world.run(*world.up())
    ran = world.run("up", RECIPE, "--model", world.model, "--dry-run")
    assert (ran.err, digest(f"id {ONE}") in ran.out) == ("", True)
    assert f"--volume=stack-server-cache-image-{digest(f'digest {ONE}')[7:19]}:" in ran.out


def test_an_empty_flag(world: World) -> None:
    assert "a flag behind -- is empty" in world.run(*world.up(ONE, "--", "")).err


def test_doctor_and_up_choose_the_same_engine(world: World) -> None:
    """docker is installed and does not answer; podman answers."""
    shutil.copy(world.folder / "bin/docker", world.folder / "bin/podman")
    (world.folder / "bin/docker").write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    remarks = json.loads(world.run("doctor", "--recipe", RECIPE, "--json").out)["remarks"]
    [engine] = [each for each in remarks if each["check"] == "engine"]
    assert engine["what"].startswith("podman"), engine
    assert world.run(*world.up()).code == 0
    assert world.known().engine == "podman"


def test_an_empty_down_chooses_no_engine(world: World) -> None:
    (world.folder / "bin/podman").symlink_to("docker")
    assert world.run("down", "--engine", "podman").code == 0
    assert not world.file.exists()
    world.run("down", "--all", "--engine", "podman")
    assert world.run(*world.up()).code == 0
    assert world.known().engine == "docker"
