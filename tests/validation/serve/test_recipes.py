# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.model.errors import StackError
from validation.serve import recipes

GOOD = """
title = "A server"
model = "tiny"
arguments = ["--dtype", "float32"]
flags = []
log = ["Using X"]
environment = { VLLM_CPU_KVCACHE_SPACE = "1" }
bar = { measure = "largest", at = 1e-4 }
"""


def read(folder: Path, text: str) -> recipes.Recipe:
    file = folder / "some-server.toml"
    file.write_text(text)
    return recipes.read(file)


def test_a_recipe(tmp_path: Path) -> None:
    recipe = read(tmp_path, GOOD)
    assert (recipe.name, recipe.arguments) == ("some-server", ("--dtype", "float32"))
    assert recipe.bar == recipes.Bar("largest", 1e-4)


@pytest.mark.parametrize("name", recipes.known())
def test_our_own_can_be_read(name: str) -> None:
    recipe = recipes.load(name)
    assert (recipe.model == recipes.GIVEN) == (recipe.bar is None) == (not recipe.log)


def test_ours_are_those_with_a_model_of_our_own() -> None:
    assert recipes.ours() == ("cpu-fp32", "cpu-mxfp4")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('model = "tiny"', 'model = "huge"', "model is 'huge'"),
        ('log = ["Using X"]', "log = []", "log is empty"),
        ('bar = { measure = "largest", at = 1e-4 }', "", "bar is missing"),
        ("at = 1e-4", "at = 0", "at is 0"),
        ("at = 1e-4", "at = nan", "at is nan"),
        ('"largest"', '"mean"', "measure is 'mean'"),
        ("flags = []", "flag = []", "flag"),
        ('= { VLLM_CPU_KVCACHE_SPACE = "1" }', "= { VLLM_CPU_KVCACHE_SPACE = 1 }", "VLLM_CPU_KVCACHE_SPACE"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(StackError) as refused:
        read(tmp_path, GOOD.replace(old, new))
    assert said in str(refused.value)


def test_unknown() -> None:
    with pytest.raises(StackError, match=r"unknown recipe 'gpu'.*cpu-fp32, cpu-mxfp4, gpt-oss"):
        recipes.load("gpu")
