# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.deploy import recipes
from stack.validation.pack import case_names
from stack.validation.pack.recipes import COMPARISONS, PADDING, RECIPES, ROUTER, compared, of, served

ALL = [recipe.name for recipe in of("sm90")]


@pytest.mark.parametrize(
    ("patches", "gone"),
    [({PADDING, ROUTER}, set()), ({PADDING}, set()), ({ROUTER}, {"marlin-padded"}), (set(), {"marlin-padded"})],
)
def test_what_has_nothing_to_leave_out_is_served_unless_another_recipe_is_the_same(patches: set[str], gone: set[str]) -> None:
    assert [recipe.name for recipe in served(patches, "sm90")] == [name for name in ALL if name not in gone]


@pytest.mark.parametrize(
    ("patches", "names"),
    [
        ({PADDING, ROUTER}, ["padding", "decode-kernels", "all-kernels"]),
        ({ROUTER}, ["decode-kernels", "all-kernels"]),
        (set(), ["decode-kernels", "all-kernels"]),
    ],
)
def test_only_what_is_served_is_compared(patches: set[str], names: list[str]) -> None:
    assert [comparison.name for comparison in compared(patches, "sm90")] == names


def test_a_spark_is_asked_which_of_two_ways_is_faster() -> None:
    carried = {PADDING, ROUTER}
    assert [recipe.name for recipe in served(carried, "sm121")] == ["marlin", "upstream", "decode", "spark", "spark-decode"]
    assert {each.name: (each.one, each.other) for each in compared(carried, "sm121")} == {
        "spark-kernels": ("spark-decode", "spark"),
        "marlin-kernels": ("decode", "marlin"),
    }


@pytest.mark.parametrize(("packed", "name"), [("spark", "gpt-oss-120b-spark"), ("spark-decode", "gpt-oss-120b-spark-decode")])
def test_what_a_spark_serves_there_is_what_its_recipe_serves(packed: str, name: str) -> None:
    [recipe] = [each for each in RECIPES if each.name == packed]
    given = list(recipes.load(name).arguments)
    for flag, value in zip(recipe.arguments[::2], recipe.arguments[1::2], strict=True):
        assert value == given[len(given) - 1 - given[::-1].index(flag) + 1]


def test_no_case_of_a_comparison_has_a_recipe_s_name() -> None:
    of_recipes = [name for recipe in RECIPES for name in case_names.of_recipe(recipe)]
    of_comparisons = [name for each in COMPARISONS for kind in each.least for name in case_names.of_comparison(each, kind)]
    assert len({*of_recipes, *of_comparisons}) == len(of_recipes) + len(of_comparisons)
