# SPDX-License-Identifier: Apache-2.0
"""Recipes that are made of settings read elsewhere."""

import pytest

from stack.deploy import imported_recipes
from stack.deploy.imported_recipes import Draft

RANKS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")


def drafted(ranks: str) -> Draft:
    flags = [(name, ranks) for name in RANKS]
    return imported_recipes.draft(
        title="x", model="openai/gpt-oss-20b", revision=None, flags=flags, environment={}, machine="spark"
    )


@pytest.mark.parametrize(("ranks", "nodes"), [("2", 8), ("4", 64), ("5", 1), ("999", 1)])
def test_it_has_at_most_64_nodes(ranks: str, nodes: int) -> None:
    made = drafted(ranks)
    assert made.nodes == nodes
    assert any("at most 64 nodes" in each.what for each in made.said) == (nodes == 1)
