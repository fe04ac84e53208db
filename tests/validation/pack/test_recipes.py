# SPDX-License-Identifier: Apache-2.0
import pytest

from stack.validation.pack.recipes import PADDING, RECIPES, ROUTER, compared, served

ALL = [recipe.name for recipe in RECIPES]


@pytest.mark.parametrize(
    ("patches", "gone"),
    [({PADDING, ROUTER}, set()), ({PADDING}, set()), ({ROUTER}, {"marlin-padded"}), (set(), {"marlin-padded"})],
)
def test_what_has_nothing_to_leave_out_is_served_unless_another_recipe_is_the_same(patches: set[str], gone: set[str]) -> None:
    assert [recipe.name for recipe in served(patches)] == [name for name in ALL if name not in gone]


@pytest.mark.parametrize(
    ("patches", "names"),
    [({PADDING, ROUTER}, ["padding", "decode-kernels"]), ({ROUTER}, ["decode-kernels"]), (set(), ["decode-kernels"])],
)
def test_only_what_is_served_is_compared(patches: set[str], names: list[str]) -> None:
    assert [comparison.name for comparison in compared(patches)] == names
