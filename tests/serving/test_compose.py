# SPDX-License-Identifier: Apache-2.0
"""Compose files: those that are kept are those that are written, and what a real compose makes of them."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack.base.errors import StackError
from stack.deploy import hardware, recipes
from stack.doctor import script, scripts
from stack.doctor.finding import Severity
from stack.doctor.rules import Target
from stack.serving.command import command
from stack.serving.compose import Usage, compose

from ..images import newer

DOCKER = Path(__file__).parents[2] / "docker"
KEPT = {"compose.yml": Usage.LOCAL, "compose.open.yml": Usage.OPEN, "compose.dev.yml": Usage.DEVELOPMENT}
SPARK = recipes.load("gpt-oss-120b-spark")
PUBLISHED = [one for one in map(recipes.load, recipes.known()) if one.hardware is not None]
ALL = [
    (one, kind)
    for one in PUBLISHED
    for kind in Usage
    if one.hardware and (one.hardware.nodes == 1 or kind is not Usage.DEVELOPMENT)
]
GIVEN = {"NODE_ADDRESS": "10.0.0.2", "HEAD_ADDRESS": "10.0.0.1", "INTERFACE": "enp1s0f0np0", "HCA": "rocep1s0f0,roceP2p1s0f0"}
OPEN = {"STACK_HOST": "0.0.0.0", "VLLM_API_KEY": "secret"}
PASSED = {"HF_TOKEN": "a-token", "HF_HUB_OFFLINE": "1", "STACK_UNCHECKED": "1"}


def composed(file: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What compose makes of a file, all of it resolved."""
    program = newer.program("docker-compose") / "usr/libexec/docker/cli-plugins/docker-compose"
    asked = [str(program), "--file", str(file), *options, "config", "--format=json"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(file.parent), **variables}
    return subprocess.run(asked, check=False, capture_output=True, text=True, env=environment)


def services(file: Path, *options: str, **variables: str) -> dict[str, Any]:
    done = composed(file, *options, STACK_IMAGE="stack", **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_is_what_is_written(name: str) -> None:
    how = f"stack recipe compose {SPARK.name} --output docker/{name}, with --open or --development as its name says"
    assert (DOCKER / name).read_text() == compose(SPARK, KEPT[name]), how


@pytest.mark.images
@pytest.mark.parametrize(("recipe", "kind"), ALL, ids=[f"{one.name}-{kind}" for one, kind in ALL])
def test_compose_takes_every_file(recipe: recipes.Recipe, kind: Usage, tmp_path: Path) -> None:
    """Real compose resolves it; each server gets its recipe's command and variables, its caches, one GPU, and no more rights."""
    assert recipe.hardware is not None
    several = recipe.hardware.nodes > 1
    file = tmp_path / "compose.yml"
    file.write_text(compose(recipe, kind))
    made = services(file, "--profile=*", **(OPEN if kind is Usage.OPEN else {}), **(GIVEN if several else {}))
    assert len(made) == recipe.hardware.nodes
    address = "0.0.0.0" if kind is Usage.OPEN else "127.0.0.1"
    for rank, one in enumerate(made.values()):
        said = GIVEN | {"NODE_RANK": str(rank)} if several else {}
        expected = command(recipe, said, host=address if several else "0.0.0.0")
        assert tuple(one["command"]) == expected.arguments
        assert expected.environment.items() <= one["environment"].items()
        assert {each["source"] for each in one["volumes"] if each["type"] == "volume"} == {"cache", "models"}
        (gpu,) = one["deploy"]["resources"]["reservations"]["devices"]
        assert (gpu["driver"], gpu["count"], gpu["capabilities"]) == ("nvidia", 1, ["gpu"])
        assert not {"privileged", "cap_add", "pid", "ipc"} & one.keys()
        assert one.get("cap_drop") == (None if kind is Usage.DEVELOPMENT else ["ALL"])
        assert int(one["shm_size"]) == 1 << 30
        assert one.get("restart") == (None if kind is Usage.DEVELOPMENT else "unless-stopped")
        assert one["environment"]["STACK_RECIPE"] == recipe.name
        assert {name: one["environment"].get(name) for name in PASSED} == dict.fromkeys(PASSED)  # none is set
        assert [each["host_ip"] for each in one.get("ports", ())] == ([] if several else [address])
        assert ("network_mode" in one, "healthcheck" in one) == (several, several and rank > 0)


@pytest.mark.parametrize(("recipe", "kind"), ALL, ids=[f"{one.name}-{kind}" for one, kind in ALL])
def test_our_own_doctor_finds_nothing_wrong(recipe: recipes.Recipe, kind: Usage, tmp_path: Path) -> None:
    assert recipe.hardware is not None
    file = tmp_path / "compose.yml"
    file.write_text(compose(recipe, kind))
    profile = hardware.load(recipe.hardware.name)
    target = Target(profile.title, profile.capability, int(profile.memory * 1e9), profile.unified)
    subject = scripts.ScriptSubject(script.read(file), {}, target)
    assert len(subject.script.serves) == recipe.hardware.nodes
    assert [finding for finding in scripts.look(subject) if finding.severity is Severity.WRONG] == []


def test_the_doctor_would_find_something(tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(compose(SPARK).replace("--max-num-seqs", "--enforce-eager, --max-num-seqs"))
    found = scripts.look(scripts.ScriptSubject(script.read(file), {}))
    assert "eager" in {finding.check for finding in found if finding.severity is Severity.WRONG}


@pytest.mark.images
def test_the_owners_settings_reach_the_server(tmp_path: Path) -> None:
    one = services(DOCKER / "compose.yml", **PASSED, STACK_RESTART="no", STACK_MODELS=str(tmp_path))["vllm"]
    assert PASSED.items() <= one["environment"].items()
    assert one["restart"] == "no"
    (cache,) = [each for each in one["volumes"] if each["target"] == "/home/stack/.cache/huggingface"]
    assert (cache["type"], cache["source"]) == ("bind", str(tmp_path))
    assert all(name not in compose(SPARK) for name in PASSED.values() if len(name) > 1)


@pytest.mark.images
def test_nobody_else_asks_what_has_no_key(tmp_path: Path) -> None:
    """Bound elsewhere only as the file says that is for it, and that file is refused without a key."""
    local = services(DOCKER / "compose.yml", STACK_HOST="0.0.0.0", STACK_PORT="9000")["vllm"]
    assert [(one["host_ip"], one["published"]) for one in local["ports"]] == [("127.0.0.1", "9000")]
    assert local["environment"]["VLLM_API_KEY"] == ""
    assert services(DOCKER / "compose.yml", VLLM_API_KEY="mine")["vllm"]["environment"]["VLLM_API_KEY"] == "mine"
    opened = services(DOCKER / "compose.open.yml", **OPEN)["vllm"]
    assert [one["host_ip"] for one in opened["ports"]] == ["0.0.0.0"]
    assert opened["environment"]["VLLM_API_KEY"] == "secret"
    nodes = tmp_path / "compose.yml"
    nodes.write_text(compose(recipes.load("gpt-oss-120b-2-sparks"), Usage.OPEN))
    for file, given in ((DOCKER / "compose.open.yml", {}), (nodes, GIVEN)):
        for key in ({}, {"VLLM_API_KEY": ""}):
            done = composed(file, STACK_IMAGE="stack", STACK_HOST="10.0.0.1", **given, **key)
            assert done.returncode != 0
            assert "VLLM_API_KEY is missing a value: the key that clients shall send" in done.stderr
        done = composed(file, STACK_IMAGE="stack", VLLM_API_KEY="secret", **given)
        assert "STACK_HOST is missing a value" in done.stderr


@pytest.mark.images
def test_several_nodes_start_where_they_are_named(tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(compose(recipes.load("gpt-oss-120b-4-sparks")))
    assert services(file, **GIVEN) == {}
    (one,) = services(file, "--profile=node-2", STACK_PORT="9000", **GIVEN).values()
    assert "--headless" in one["command"]
    (one,) = services(file, "--profile=node-0", STACK_PORT="9000", **GIVEN).values()
    assert one["command"][-4:] == ["--host", "127.0.0.1", "--port", "9000"]
    # Where the health check asks.
    assert (one["environment"]["STACK_HOST"], one["environment"]["STACK_PORT"]) == ("127.0.0.1", "9000")
    for name in GIVEN:
        done = composed(file, STACK_IMAGE="stack", **{one: value for one, value in GIVEN.items() if one != name})
        assert f"{name} is missing a value: {recipes.load('gpt-oss-120b-4-sparks').variables[name]}" in done.stderr


@pytest.mark.images
def test_development_mounts_the_sources() -> None:
    one = services(DOCKER / "compose.dev.yml", TREES="/srv/trees")["dev"]
    mounted = {(each["source"], each["target"], each.get("read_only", False)) for each in one["volumes"]}
    assert ("/srv/trees/vllm/vllm", "/src/vllm", True) in mounted
    assert ("/srv/trees/flashinfer/flashinfer", "/src/flashinfer", True) in mounted


@pytest.mark.images
def test_compose_says_what_is_missing_or_wrong(tmp_path: Path) -> None:
    assert "the image that stack image build --target development made" in composed(DOCKER / "compose.dev.yml").stderr
    wrong = tmp_path / "compose.yaml"
    wrong.write_text((DOCKER / "compose.yml").read_text().replace("init: true", "initt: true"))
    assert "initt" in composed(wrong, STACK_IMAGE="one").stderr


def test_no_volume_is_in_the_way_of_the_images_user() -> None:
    """A volume takes the owner of the image's folder at its place: both are there, and the user's."""
    made = (DOCKER / "Dockerfile").read_text().partition("install -d -o 10001 -g 10001 ")[2].partition("\n")[0].split()
    volumes = yaml.safe_load((DOCKER / "compose.yml").read_text())["services"]["vllm"]["volumes"]
    assert {one.rpartition(":")[2] for one in volumes} <= {*made}


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("cpu-fp32", Usage.LOCAL, "no published model"),
        ("gpt-oss", Usage.LOCAL, "no published model"),
        ("gpt-oss-120b-2-sparks", Usage.DEVELOPMENT, "is for 2 nodes"),
    ],
)
def test_what_cannot_be_composed(name: str, kind: Usage, said: str) -> None:
    with pytest.raises(StackError, match=said):
        compose(recipes.load(name), kind)
