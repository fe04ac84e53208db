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


@pytest.mark.parametrize(
    ("model", "kept", "needs_person"),
    [("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", False, False), ("somebody/Model-NVFP4", True, True)],
)
def test_code_of_the_models_repository_is_run_only_where_vllm_lacks_the_model(
    model: str, kept: bool, needs_person: bool
) -> None:
    flags = [("--trust-remote-code", None)]
    made = imported_recipes.draft(title="x", model=model, revision=None, flags=flags, environment={}, machine="spark")
    assert (("--trust-remote-code",) in made.arguments) is kept
    (said,) = made.said
    assert (said.setting, said.needs_person) == ("--trust-remote-code", needs_person)
    assert "code of the model's repository" in said.what
