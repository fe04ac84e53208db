# SPDX-License-Identifier: Apache-2.0
"""`stack status`: what waits for a person, what can be dropped, and what changed since the last release."""

from pathlib import Path
from typing import Any

from ..carry.test_workspace import STOPS
from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import CONFLICT, REBASE, parsed


def status(stack: Stack) -> dict[str, Any]:
    return dict[str, Any](parsed(stack("status", "--json")))


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["text"] for item in items]


def test_before_anything_was_tried(stack: Stack) -> None:
    found = status(stack)
    assert keys(found) <= verb("status") | verb("log")
    assert (found["droppable"], found["moved"], found["since"], found["tried"]) == ([], None, [], [])
    assert texts(found["waiting"]) == [
        "1 series is not proposed upstream yet: one.",
        "1 series is a draft: two.",
        "2 series have no proof: one, two.",
    ]
    out = stack("status").out
    assert out.startswith("6 patches in 2 series on gamma v2.0, alpha v1.0\n\nWaits for a person\n  - 1 series is not proposed")
    assert "Can be dropped" not in out


def test_what_a_dry_run_found_is_remembered_until_the_stack_changes(stack: Stack, world: World) -> None:
    stack(*CONFLICT, "--dry-run")
    found = status(stack)
    assert keys(found) <= verb("status") | verb("log")
    assert found["waiting"][0]["text"].endswith("need a person on gamma v2.2.")
    assert found["waiting"][0]["details"][0] == f"{STOPS[0].removesuffix('.patch')}: conflict in gamma/main.py:10"
    assert found["waiting"][0]["command"] == f"stack explain {STOPS[0].removesuffix('.patch')} --onto v2.2"
    assert "one/gamma/hook-main: conflict in gamma/main.py:10" in stack("status").out
    stack(*REBASE, "--dry-run")
    assert texts(status(stack)["droppable"]) == ["1 patch has landed in gamma v2.1."]
    assert status(stack)["droppable"][0]["command"] == "stack rebase gamma --onto v2.1"
    world.edit("stacks/one/gamma/tool-flag.patch", "+flag\n", "+flags\n")
    assert status(stack)["tried"] == []


def test_a_forecast_is_remembered(stack: Stack) -> None:
    stack("forecast", "gamma", "--against", "v2.1")
    assert [(each["upstream"], each["onto"]) for each in status(stack)["tried"]] == [("gamma", "v2.1")]


def test_after_a_switch(stack: Stack, world: World) -> None:
    stack(*REBASE)
    found = status(stack)
    assert found["moved"]["title"] == "rebase gamma --onto v2.1"
    assert found["tried"] == []
    assert "Since gamma v2.0 -> v2.1, alpha v1.0 -> v1.1 (just now)\n  no command" in stack("status").out
    assert stack("refresh", "gamma", "--signoff").code in (0, 2)
    stack("undo")
    assert status(stack)["moved"] is None


def test_a_stopped_rebase_is_named_while_its_folder_stands(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    stack(*CONFLICT, "--workspace", folder)
    assert status(stack)["waiting"][0]["text"] == f"A rebase onto gamma v2.2 has stopped in {folder}."
    assert status(stack)["waiting"][0]["command"] == f"stack explain {folder}"
    stack("rebase", "--abort", folder)
    assert "has stopped" not in stack("status").out


def test_an_aborted_skip_is_no_outcome(stack: Stack, tmp_path: Path) -> None:
    """Nobody leaves the patch out any more: what the dry run found stands."""
    stack(*CONFLICT, "--dry-run")
    before = status(stack)
    folder = tmp_path / "work"
    stack(*CONFLICT, "--workspace", folder)
    stack("rebase", "--skip", folder)
    stopped = {each["patch"]: each["outcome"] for each in status(stack)["tried"][0]["outcomes"]}
    assert stopped[STOPS[0]] == "left-out"
    stack("rebase", "--skip", folder)
    stack("rebase", "--abort", folder)
    after = status(stack)
    assert after["waiting"] == before["waiting"]
    assert after["tried"][0]["outcomes"] == before["tried"][0]["outcomes"]


def test_what_can_be_dropped(stack: Stack, world: World) -> None:
    world.edit("stacks/one/series.toml", 'state = "pending"', 'state = "merged"\npull = "https://example.org/pull/1"')
    series = world.root / "stacks/two/series.toml"
    series.write_text(series.read_text().partition("[[patch]]")[0])
    for file in (world.root / "stacks/two").rglob("*.patch"):
        file.unlink()
    found = status(stack)["droppable"]
    assert texts(found) == ["Series one is merged upstream and still carried.", "Series two carries no patch any more."]
    assert found[0]["details"] == ["https://example.org/pull/1"]


def test_a_damaged_memory_is_ignored(stack: Stack, world: World) -> None:
    stack(*CONFLICT, "--dry-run")
    for file in (world.cache / "results/tried").iterdir():
        file.write_text('{"onto": "v2.2", "patches": 7}')
    assert status(stack)["tried"] == []


def test_what_has_landed_waits_for_the_patches_that_need_a_person(stack: Stack, tmp_path: Path) -> None:
    """The plain command would fail: another patch conflicts there."""
    way = ("rebase", "gamma", "--onto", "v2.2", "--through", "v2.1")
    stack(*way, "--dry-run")
    [item] = status(stack)["droppable"]
    assert item["text"] == "1 patch has landed in gamma v2.2; drop it after the 1 that needs a person."
    assert item["command"] == "stack rebase gamma --onto v2.2 --through v2.1 --workspace DIR"
    folder = tmp_path / "work"
    stack(*way, "--with-required", "--workspace", folder)
    assert status(stack)["droppable"][0]["command"] == f"stack rebase --continue {folder}"
