# SPDX-License-Identifier: Apache-2.0
"""Recipes that change another one."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.deploy import recipes
from stack.deploy.node_settings import NODES, ON_NODES
from stack.deploy.recipes import Recipe

BASE = """
title = "A server"
model = "gpt-oss-20b"
arguments = ["--a", "1", "--switch", "--b", "2", "--a", "3", "--c"]
environment = { ONE = "1", TWO = "2" }
hardware = { name = "spark", nodes = 1, memory = 45 }
backends = { moe = "X", linear = "Y", graphs = true }
speed = [{ context = 1, decode = 1, source = "me" }]
proven = "validation/verdicts/one.json"
"""


def derived(folder: Path, text: str, base: str = BASE) -> Recipe:
    (folder / "base.toml").write_text(base)
    file = folder / "derived.toml"
    file.write_text(f'title = "Changed"\nbase = "base"\n{text}')
    return recipes.read(file)


def test_changes_lie_on_top(tmp_path: Path) -> None:
    """A flag takes the place of the base's, however often that has it; a new one comes last; tables are merged by key."""
    recipe = derived(
        tmp_path,
        """arguments = ["--b", "20", "--a", "10", "--new", '{"x":1}']
environment = { TWO = "22" }
hardware = { memory = 64 }
backends = { linear = "Z" }
""",
    )
    assert recipe.arguments == ("--a", "10", "--switch", "--b", "20", "--c", "--new", '{"x":1}')
    assert dict(recipe.environment) == {"ONE": "1", "TWO": "22"}
    assert recipe.hardware == recipes.Hardware("spark", 1, 64)
    assert (recipe.backends.moe, recipe.backends.linear, recipe.backends.graphs) == ("X", "Z", True)
    assert (recipe.model, recipe.title, recipe.base) == ("gpt-oss-20b", "Changed", "base")


def test_what_was_measured_is_of_one_recipe_only(tmp_path: Path) -> None:
    recipe = derived(tmp_path, "")
    assert (recipe.speeds, recipe.batch_speeds, recipe.proven) == ((), (), None)
    assert recipe.arguments == recipes.read(tmp_path / "base.toml").arguments


def test_without_takes_out(tmp_path: Path) -> None:
    recipe = derived(tmp_path, 'without = ["--a", "--switch", "ONE", "backends.linear"]')
    assert recipe.arguments == ("--b", "2", "--c")
    assert dict(recipe.environment) == {"TWO": "2"}
    assert (recipe.backends.moe, recipe.backends.linear) == ("X", None)


def test_a_base_may_be_one_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('title = "Mine"\nbase = "gpt-oss-120b-2-sparks"\narguments = ["--max-num-seqs", "4"]\n')
    recipe = recipes.read(file)
    assert recipe.arguments[recipe.arguments.index("--max-num-seqs") + 1] == "4"
    assert recipes.RANK in recipe.variables


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('without = ["--none"]', "without names '--none', which the base does not have"),
        ('without = ["backends.attention"]', "without names 'backends.attention'"),
        ('without = ["THREE"]', "without names 'THREE'"),
        ('without = ["--a"]\narguments = ["--a", "1"]', "takes out --a, and arguments have it"),
        ('arguments = ["10", "--a"]', "arguments begin with '10'"),
        ("environment = 1", "environment is 1"),
        ("hardware = { name = 1 }", "hardware.name is 1"),
        ("backends = { graph = true }", "backends.graph is an unknown key"),
        ('bases = "base"', "bases is an unknown key"),
        ('variables = { X = "unused" }', "the arguments disagree on X"),
    ],
)
def test_what_is_wrong_is_named_with_the_recipe(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(StackError) as refused:
        derived(tmp_path, text)
    assert str(refused.value).startswith(f"{tmp_path / 'derived.toml'}: ")
    assert said in str(refused.value)


def test_a_base_has_no_base(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="base is base, which has a base itself: name gpt-oss-20b-spark"):
        derived(tmp_path, "", 'title = "B"\nbase = "gpt-oss-20b-spark"\n')


@pytest.mark.parametrize("name", ["derived", "gpt-oss-20b-sparc", "../base"])
def test_an_unknown_base(tmp_path: Path, name: str) -> None:
    (tmp_path / "base.toml").write_text(BASE)
    file = tmp_path / "derived.toml"
    file.write_text(f'title = "Changed"\nbase = "{name}"\n')
    with pytest.raises(StackError, match=r"unknown base|it has to be the name of a recipe"):
        recipes.read(file)


def test_ours_are_what_they_were() -> None:
    """Four Sparks differ from two in their number only."""
    two, four = recipes.load("gpt-oss-120b-2-sparks"), recipes.load("gpt-oss-120b-4-sparks")
    differ = [(one, other) for one, other in zip(two.arguments, four.arguments, strict=True) if one != other]
    assert differ == [("2", "4"), ("2", "4")]
    assert (two.environment, two.variables, two.backends) == (four.environment, four.variables, four.backends)
    assert dict(two.variables) == dict(NODES)
    assert ON_NODES.items() <= two.environment.items()
