# SPDX-License-Identifier: Apache-2.0
"""`spark-stack recipes`, `spark-stack completion`, and help whose names can be copied."""

import json
import os
import subprocess
import sys

import pytest

from stack.deploy import recipes

from ...owner.world import SCRIPT, World, made


@pytest.fixture(name="world", scope="module")
def _world(tmp_path_factory: pytest.TempPathFactory) -> World:
    with made(tmp_path_factory.mktemp("finding") / "machine") as world:
        return world


def test_recipes(world: World) -> None:
    ran = world.run("recipes")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[2:-1]] == list(recipes.known())
    assert any(line.split() == ["gpt-oss-120b-2-sparks", "2", "x", "spark", "90", "69"] for line in lines)
    listed = json.loads(world.run("recipes", "--json").out)["recipes"]
    assert next(each for each in listed if each["name"] == "gpt-oss-120b-spark")["memory"] == 90


def test_a_shell_completes_verbs_and_recipes(world: World) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_SPARK_STACK_COMPLETE" in world.run("completion", shell).out

    def completed(words: str, place: int) -> list[str]:
        asked = {"_SPARK_STACK_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
        environment = {**os.environ, **world.environment, **asked}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    assert completed("spark-stack ro", 1) == ["rollback"]
    assert "gpt-oss-120b-spark" in completed("spark-stack up gpt-oss-120b-s", 2)
    assert "--keep-free" in completed("spark-stack up --keep", 2)


@pytest.mark.parametrize("verb", ["up", "doctor", "check", "update", "setup"])
def test_help_breaks_no_name_at_a_hyphen(world: World, verb: str) -> None:
    ran = world.run(verb, "--help")
    assert ran.code == 0
    assert not [line for line in ran.out.splitlines() if line.rstrip().endswith("-") and not line.rstrip().endswith(" -")]
    assert "\x01" not in ran.out


def test_a_long_name_stays_whole(world: World) -> None:
    assert "gpt-oss-120b-spark" in world.run("doctor", "--help").out
