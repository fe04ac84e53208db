# SPDX-License-Identifier: Apache-2.0
"""Lanes on the command line: a stack that is held on several releases."""

import json
import os
import re
from pathlib import Path

import pytest

from stack.model import digest, lanes
from stack.model.stack import load

from ..carry.test_worktree import user_git
from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import parsed

ONTO = ("rebase", "gamma", "--onto", "v2.1", "--with-required")


def carried(world: World) -> dict[str | None, str]:
    """The digest over the exact pins and patches of each lane."""
    return {lane: digest.exact(one) for lane, one in lanes.carried(world.root).items()}


def own(world: World) -> list[str]:
    """The files that lanes have of their own."""
    return [path.removeprefix("stacks/lanes/") for path in world.files() if path.startswith("stacks/lanes/")]


def test_a_rebase_leaves_the_lanes_where_they_are_and_one_in_a_lane_moves_only_that(stack: Stack, world: World) -> None:
    whole = world.files()
    assert stack("lane", "add", "old").code == 0
    begun, first = world.files(), carried(world)
    assert set(begun) == set(whole)
    assert first["old"] == first[None]
    assert stack(*ONTO).code == 0
    assert carried(world)["old"] == first["old"]
    assert carried(world)[None] != first[None]
    # The patches that have moved or landed, and the list with the one that has landed.
    assert own(world) == [
        "old/one/alpha/core-switch.patch",
        "old/one/gamma/hook-main.patch",
        "old/one/gamma/tool-flag.patch",
        "old/two/gamma/fix-limit.patch",
        "old/two/series.toml",
    ]
    for name in ("lint", "check"):
        ran = stack(name, "--all-lanes")
        assert (ran.code, ran.out.count("in order"), ran.out.count("\n== old ==\n")) == (0, 2, 1)
    moved = world.files()
    done = stack(*ONTO, "--lane", "old")
    assert done.code == 0
    assert done.out.endswith("switched: gamma, alpha; `stack undo` takes it back\n")
    assert own(world) == []
    assert carried(world)["old"] == carried(world)[None]
    assert {path for path, data in world.files().items() if moved.get(path) != data} == {"pins.toml"}
    assert stack("undo").out == "undone: rebase gamma --onto v2.1 --lane old (6 files)\n"
    assert world.files() == moved
    assert stack("undo").code == 0
    assert world.files() == begun
    assert stack("undo").code == 0
    assert world.files() == whole


def test_a_lane_moves_and_the_rest_stays(stack: Stack, world: World) -> None:
    stack("lane", "add", "new")
    before = world.files()
    assert stack(*ONTO, "--lane", "new").code == 0
    after = world.files()
    assert {path for path, data in before.items() if after[path] != data} == {"pins.toml"}
    assert own(world) == [
        "new/one/alpha/core-switch.patch",
        "new/one/gamma/hook-main.patch",
        "new/one/gamma/tool-flag.patch",
        "new/two/series.toml",
    ]
    assert "landed" in world.read("stacks/lanes/new/two/series.toml")
    assert load(world.root).pins.get("gamma").tag == "v2.0"
    assert world.read("pyproject.toml").count("gamma-pkg==2.0") == 1
    shown = stack("status", "--lane", "new", "--all").out
    assert re.search(r"Hook main \(own version of the lane\)$", shown, re.MULTILINE)
    assert re.search(r"Open header$", shown, re.MULTILINE)
    assert shown.startswith("5 patches in 2 series on gamma v2.1, alpha v1.1, lane new (3 of its own)\n")
    assert stack("lint", "--lane", "new").code == 0


def test_json_names_the_lane(stack: Stack, world: World) -> None:
    stack("lane", "add", "old")
    stack(*ONTO)
    asked = {
        "status": (), "lint": (), "check": (), "pins show": (), "forecast": ("gamma", "--against", "v2.1"), "pins verify": (),
        "rebase": ("gamma", "--onto", "v2.1", "--dry-run", "--allow-mismatch"),
    }  # fmt: skip
    for name, more in asked.items():
        for lane, key in ((("--lane", "old"), "old"), (("--lane", "main"), None), ((), None)):
            found = parsed(stack(*name.split(), *more, *lane, "--json"))
            assert found["lane"] == key, name
            if name in ("status", "lint", "check", "pins show"):
                assert {*found} <= verb(name)
        if not name.startswith("pins"):
            every = parsed(stack(*name.split(), *more, "--all-lanes", "--json"))
            assert [one["lane"] for one in every["lanes"]] == [None, "old"]
            assert {*every["lanes"][1]} == {"schema", *found}
    listed = parsed(stack("lane", "list", "--json"))
    assert keys(listed) == verb("lane list")
    assert [(one["lane"], one["patches"], len(one["own"])) for one in listed["lanes"]] == [(None, 5, 0), ("old", 6, 4)]
    assert keys(parsed(stack("lane", "add", "older", "--from", "old", "--json"))) == verb("lane add")
    assert carried(world)["older"] == carried(world)["old"]
    dropped = parsed(stack("lane", "drop", "old", "--json"))
    assert keys(dropped) == verb("lane drop")
    assert dropped["lanes"] == ["older"]
    assert not any(path.startswith("old/") for path in own(world))


def test_an_error_in_one_lane_does_not_hide_the_others(stack: Stack, world: World) -> None:
    stack("lane", "add", "old")
    (world.root / "stacks/lanes/old/one").mkdir(parents=True)
    (world.root / "stacks/lanes/old/one/series.toml").write_text("patch = 1\n")
    ran = stack("status", "--all-lanes", "--json")
    found = json.loads(ran.out)["lanes"]
    assert (ran.code, [sorted(one) == ["error", "lane"] for one in found]) == (2, [False, True])
    assert ran.err.startswith("stack: old: ")
    lint = stack("lint")
    assert (lint.code, "stacks/lanes/old: stacks/lanes/old/one/series.toml: patch is 1" in lint.out) == (1, True)


@pytest.mark.parametrize(
    ("name", "shown", "fault"),
    [(b"no\x1b[31mte", "no\\x1b[31mte", "has a control character"), (b"\xff", "\\udcff", "is not UTF-8")],
)
def test_a_file_with_an_unfit_name_is_shown_and_has_to_go_first(
    stack: Stack, world: World, name: bytes, shown: str, fault: str
) -> None:
    stack("lane", "add", "old")
    folder = world.root / "stacks/lanes/old"
    folder.mkdir(parents=True)
    file = folder / os.fsdecode(name)
    try:
        file.write_text("")
    except OSError:
        pytest.skip("this file system has no such names")
    before = world.files()
    for lane in ("main", "old"):
        lint = stack("lint", "--lane", lane)
        assert (lint.code, f"'stacks/lanes/old/{shown}', which {fault}" in " ".join(lint.out.split())) == (1, True)
    for args in (("drop", "old"), ("add", "two", "--from", "old")):
        refused = stack("lane", *args).refused()
        assert refused == f"'stacks/lanes/old/{shown}' {fault}: remove or rename it, then run the command again"
    assert world.files() == before
    file.rename(folder / "note")
    assert stack("lane", "drop", "old").code == 0
    assert not (folder / "note").exists()


def test_what_is_refused(stack: Stack, world: World, tmp_path: Path) -> None:
    stack("lane", "add", "old")
    assert stack("status", "--lane", "0.9").refused() == (
        "unknown lane '0.9': pins.toml has main, old; `stack lane add` begins one"
    )
    assert "choose one" in stack("status", "--lane", "old", "--all-lanes").refused()
    assert "has a lane 'old' already" in stack("lane", "add", "old").refused()
    assert "is not a valid name of a lane" in stack("lane", "add", "../x").refused()
    assert "unknown lane 'x'" in stack("lane", "drop", "x").refused()
    one = stack("rebase", "gamma", "--onto", "v2.1", "--all-lanes").refused()
    assert one == (
        "--onto v2.1 would put every lane on one release: name one for each: --onto main=REV --onto old=REV; or --dry-run"
    )
    each = ("rebase", "gamma", "--all-lanes", "--with-required", "--onto", "main=v2.1")
    assert stack(*each).refused().startswith("no --onto for lane old: add --onto old=REV")
    assert "names lane main twice" in stack(*each, "--onto", "main=v2.0").refused()
    assert "names no lane" in stack(*each, "--onto", "older=v2.0").refused()
    assert "name one lane" in stack(*each, "--workspace", tmp_path / "w").refused()


def test_every_lane_moves_to_its_own_release_or_none_does(stack: Stack, world: World) -> None:
    stack("lane", "add", "old")
    before = world.files()
    each = ("rebase", "gamma", "--all-lanes", "--with-required", "--onto", "main=v2.1", "--onto")
    failed = stack(*each, "old=v2.2")
    assert failed.code == 1
    assert "all would carry; nothing was changed, since another lane needs a person" in failed.out
    assert "stack rebase gamma --onto v2.2 --lane old --with-required --workspace DIR" in failed.out
    assert world.files() == before
    assert stack(*each, "old=v2.1", "--dry-run").code == 0
    assert world.files() == before
    first = carried(world)
    done = stack(*each, "old=v2.0")
    assert done.code == 0, done
    assert carried(world)["old"] == first["old"]
    assert load(world.root).pins.get("gamma").tag == "v2.1"
    assert stack("undo").out.startswith("undone: rebase gamma --all-lanes --onto main=v2.1 --onto old=v2.0 (")
    assert world.files() == before
    assert stack(*each, "old=v2.1").code == 0
    assert own(world) == []
    assert carried(world)["old"] == carried(world)[None]


def test_a_rebase_with_conflicts_goes_on_in_its_lane(stack: Stack, world: World, tmp_path: Path) -> None:
    stack("lane", "add", "new")
    before, folder = world.files(), tmp_path / "work"
    asked = ("rebase", "gamma", "--onto", "v2.2", "--with-required", "--lane", "new")
    assert stack(*asked, "--workspace", folder).code == 1
    assert "stands alone" in stack("rebase", "--continue", folder, "--lane", "main").refused()
    for _ in range(9):
        if stack("rebase", "--skip", folder).code == 0:
            break
    after = world.files()
    assert load(world.root, "new").pins.get("gamma").tag == "v2.2"
    assert {path for path, data in before.items() if after.get(path) != data} == {"pins.toml"}
    assert stack("lint", "--all-lanes").code == 0


@pytest.mark.parametrize("follow", [False, True])
def test_a_working_tree_knows_its_lane(stack: Stack, world: World, tmp_path: Path, follow: bool) -> None:
    stack("lane", "add", "old")
    stack(*ONTO)
    main, old = tmp_path / "main", tmp_path / "old"
    stack("checkout", "gamma", main)
    stack("checkout", "gamma", old, "--lane", "old")
    assert len(user_git(old, "log", "--format=%s", "stack-base..").splitlines()) == 3
    assert "was checked out with --lane old" in stack("refresh", "gamma", old, "--lane", "main").refused()
    user_git(old, "commit", "--amend", "--quiet", "--trailer", "Acked-by: A <a@a>", "--no-edit")
    before = carried(world)
    assert stack("refresh", "gamma", old).code == 0
    assert carried(world)[None] == before[None]
    assert carried(world)["old"] != before["old"]
    # A new patch in the common series, which the lane lists for itself in `two` only.
    (main / "gamma/new.py").write_text("new\n")
    user_git(main, "add", "gamma/new.py")
    user_git(main, "commit", "--quiet", "-m", "New file\n\nWhy.\n\nSigned-off-by: A <a@a>\nStack-Series: one")
    before = carried(world)
    assert stack("refresh", "gamma", main, *(["--all-lanes"] if follow else [])).code == 0
    assert (carried(world)["old"] == before["old"]) is not follow
    assert ("one/gamma/new-file.patch" in {ref.path for ref in load(world.root, "old").patches}) is follow
    assert stack("lint", "--all-lanes").code == 0
