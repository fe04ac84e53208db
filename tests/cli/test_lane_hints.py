# SPDX-License-Identifier: Apache-2.0
"""What commands advise in a stack with lanes: commands that act in the lane at hand, and nothing that breaks another lane."""

from pathlib import Path

import pytest

from ..carry.world import World
from .conftest import Stack
from .test_lanes import ONTO
from .test_verbs import CONFLICT, parsed


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


def commands(items: list[dict[str, str]]) -> list[str]:
    return [item["command"] for item in items if item["command"]]


def test_printed_commands_act_in_the_lane_at_hand(stack: Stack, world: World) -> None:
    (world.root / "test_it.py").write_text("def test_it(): pass\n")
    world.edit("stacks/one/series.toml", 'state = "pending"', 'state = "pending"\nproves = ["test_it.py"]')
    stack("lane", "add", "old")
    stack(*CONFLICT, "--dry-run", "--lane", "old")
    waiting = commands(parsed(stack("status", "--lane", "old", "--json"))["waiting"])
    assert [line for line in waiting if "explain" in line] == ["stack explain one/gamma/hook-main --onto v2.2 --lane old"]
    stack("rebase", "gamma", "--onto", "v2.1", "--dry-run", "--lane", "old")
    droppable = commands(parsed(stack("status", "--lane", "old", "--json"))["droppable"])
    assert droppable == ["stack rebase gamma --onto v2.1 --lane old"]
    at_pin = parsed(stack("explain", "hook-main", "--lane", "old", "--json"))["next"]
    assert commands(at_pin) == ["stack prove one --lane old"]
    there = parsed(stack("explain", "hook-main", "--onto", "v2.2", "--lane", "old", "--json"))["next"]
    assert commands(there) == ["stack rebase gamma --onto v2.2 --lane old --workspace DIR", "stack prove one --lane old"]
    landed = parsed(stack("explain", "hook-main", "--onto", "v2.2", "--json"))["next"]
    assert commands(landed) == ["stack rebase gamma --onto v2.2 --workspace DIR", "stack prove one"]
    pinned = stack("pins", "set", "gamma", "v2.1", "--allow-mismatch", "--lane", "old")
    assert "`stack lint --lane old`" in " ".join(pinned.out.split())


def test_a_workspace_is_explained_in_its_lane(stack: Stack, world: World, tmp_path: Path) -> None:
    (world.root / "test_it.py").write_text("def test_it(): pass\n")
    for name in ("one", "two"):
        text = world.read(f"stacks/{name}/series.toml")
        (world.root / f"stacks/{name}/series.toml").write_text(f'proves = ["test_it.py"]\n{text}')
    stack("lane", "add", "old")
    folder = tmp_path / "work"
    assert stack(*CONFLICT, "--lane", "old", "--workspace", folder).code == 1
    # A change in main is not what the lane carries.
    assert stack(*ONTO).code == 0
    found = parsed(stack("explain", folder, "--json"))
    assert (found["from"], found["next"][-1]["command"].endswith(" --lane old")) == ("v2.0", True)
    assert "leave --lane out" in stack("explain", folder, "--lane", "main").refused()


def test_main_is_no_lane_to_drop(stack: Stack) -> None:
    stack("lane", "add", "old")
    assert stack("lane", "drop", "main").refused().startswith("main cannot be dropped: it holds what is in no lane")


def test_a_target_for_a_lane_needs_all_lanes(stack: Stack) -> None:
    stack("lane", "add", "old")
    for name in ("old", "main"):
        line = stack("rebase", "gamma", "--onto", f"{name}=v2.1").refused()
        alone = f"stack rebase gamma --onto v2.1 --lane {name}"
        assert line == f"--onto {name}=v2.1 names a lane: add --all-lanes, or move only this lane: {alone}"
    both = ("rebase", "gamma", "--onto", "old=v2.1", "--onto", "main=v2.1")
    assert "goes with --all-lanes" in stack(*both).refused()
    assert "is not a release tag" in stack("rebase", "gamma", "--onto", "older=v2.1").refused()


def test_a_dry_run_of_all_lanes_ends_with_a_command_that_works(stack: Stack) -> None:
    stack("lane", "add", "old")
    tried = stack(*ONTO, "--all-lanes", "--dry-run")
    printed = [line.strip() for line in tried.out.splitlines() if line.strip().startswith("stack rebase")]
    assert printed == [f"stack rebase gamma --onto v2.1{lane} --with-required" for lane in ("", " --lane old")]
    assert "the same without" not in tried.out
    for line in printed:
        assert stack(*line.split()[1:]).code == 0
    stack("undo")
    stack("undo")
    each = ("rebase", "gamma", "--with-required", "--all-lanes", "--onto", "main=v2.1", "--onto")
    assert stack(*each, "old=v2.1", "--dry-run").out.count("the same without --dry-run") == 2
    assert "the same without --dry-run" not in stack(*each, "old=v2.2", "--dry-run").out


def titles(stack: Stack, *lane: str) -> tuple[str | None, list[str]]:
    found = parsed(stack("status", *lane, "--json"))
    return found["moved"] and found["moved"]["title"], [switch["title"] for switch in found["since"]]


def test_since_shows_what_was_done_in_the_lane(stack: Stack) -> None:
    stack("lane", "add", "rc")
    stack("lane", "add", "old")
    assert titles(stack, "--lane", "old") == (None, ["lane add old"])
    assert titles(stack) == (None, [])
    stack(*ONTO)
    assert titles(stack) == ("rebase gamma --onto v2.1", [])
    assert titles(stack, "--lane", "old") == (None, ["lane add old"])
    stack(*ONTO, "--lane", "old")
    stack("lane", "drop", "rc")
    assert titles(stack) == ("rebase gamma --onto v2.1", [])
    assert titles(stack, "--lane", "old") == ("rebase gamma --onto v2.1 --lane old", [])
    assert (
        "Since gamma v2.0 -> v2.1 (lane old), alpha v1.0 -> v1.1 (lane old) (just now)\n"
        in stack("status", "--lane", "old").out
    )
    stack("undo")
    stack("undo")
    stack("undo")
    each = (
        "rebase",
        "gamma",
        "--with-required",
        "--all-lanes",
        "--onto",
        "main=v2.1",
        "--onto",
        "old=v2.0",
        "--onto",
        "rc=v2.1",
    )
    assert stack(*each).code == 0
    together = "rebase gamma --all-lanes --onto main=v2.1 --onto rc=v2.1 --onto old=v2.0"
    assert titles(stack) == titles(stack, "--lane", "main") == (together, [])
    assert titles(stack, "--lane", "rc") == (together, [])
    assert titles(stack, "--lane", "old") == (None, [together, "lane add old"])
