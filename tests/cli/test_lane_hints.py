# SPDX-License-Identifier: Apache-2.0
"""What commands advise in a stack with lanes: commands that act in the lane at hand, and nothing that breaks another lane."""

import pytest

from ..carry.world import World
from .conftest import Stack
from .test_lanes import ONTO
from .test_verbs import parsed


@pytest.fixture
def emptied(stack: Stack, world: World) -> str:
    """The end of a rebase of main that empties series two, which lane `old` still carries."""
    series = world.read("stacks/two/series.toml")
    tables = series.split("[[patch]]")
    kept = [table for table in tables[1:] if "fix-limit" in table]
    (world.root / "stacks/two/series.toml").write_text("[[patch]]".join([tables[0], *kept]))
    for file in (world.root / "stacks/two").rglob("*.patch"):
        if file.name != "fix-limit.patch":
            file.unlink()
    stack("lane", "add", "old")
    done = stack(*ONTO)
    assert done.code == 0
    return " ".join(done.out.split())


def test_a_series_that_a_lane_carries_is_not_to_be_removed(stack: Stack, emptied: str) -> None:
    assert "two carries no patch any more" in emptied
    assert emptied.endswith("keep it in stacks/stack.toml: lane old still needs it")
    assert parsed(stack("status", "--json"))["droppable"] == []
    assert "no patch (lane old has)" in stack("status").out
    done = stack(*ONTO, "--lane", "old")
    ended = " ".join(done.out.split())
    assert "`stack prove --lane old` still looks after what has landed" in ended
    assert ended.endswith("to let go of it, take it out of stacks/stack.toml and remove stacks/two")
    [item] = parsed(stack("status", "--json"))["droppable"]
    assert item["text"] == "Series two carries no patch any more."


def test_a_series_that_main_carries_is_not_to_be_removed_for_a_lane(stack: Stack, world: World, emptied: str) -> None:
    stack("undo")
    assert stack(*ONTO, "--lane", "old").out.endswith("lane main still needs it\n")
    assert "Series two" not in stack("status", "--lane", "old").out


def test_an_invalid_lane_may_carry_anything(stack: Stack, world: World, emptied: str) -> None:
    (world.root / "stacks/lanes/old/one/series.toml").write_text("patch = 1\n")
    assert parsed(stack("status", "--json"))["droppable"] == []


def test_removing_a_series_of_a_lane_says_how_to_mend_it(stack: Stack, world: World, emptied: str) -> None:
    world.edit("stacks/stack.toml", ', "two"', "")
    (world.root / "stacks/two/series.toml").unlink()
    line = stack("lint", "--lane", "old").refused()
    assert line.endswith("the lane still uses series two: name it in stacks/stack.toml again, and bring back stacks/two")
