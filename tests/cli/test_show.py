# SPDX-License-Identifier: Apache-2.0
"""`stack show`, `stack diff` and `stack log`: what is carried, what it changes, and what each switch did."""

import json
import re
import subprocess
from typing import Any

import pytest

from stack.model import switch

from ..carry.world import World
from ..documented import keys, verb
from .conftest import Stack
from .test_verbs import REBASE, parsed


def test_show(stack: Stack, world: World) -> None:
    ran = stack("show", "tool")
    assert ran.code == 0
    assert ran.out.startswith("[tool] Flag für das Werkzeug\npatch     one/gamma/tool-flag\n")
    assert "upstream  gamma v2.0, patch 2 of 3\n" in ran.out
    assert "series    one: One\nwhy       It is needed.\n" in ran.out
    assert "  Why it is needed.\n" in ran.out
    assert 0 < ran.out.find("\nMessage\n  Why it is needed.\n") < ran.out.find("\n\nseries    one"), "its own message first"
    assert ran.out.endswith("Files\n  gamma/tool.py  +1 -1\n")
    raw = world.read("stacks/one/gamma/tool-flag.patch")
    assert stack("show", "tool", "-p").out.endswith(raw[raw.index("diff --git") :])
    found = parsed(stack("show", "tool", "--json"))
    assert keys(found) == verb("show")
    assert (found["number"], found["of"], found["files"][0]["change"]) == (2, 3, "changed")
    assert stack("show", "tol-flag").refused() == "unknown patch 'tol-flag': did you mean 'one/gamma/tool-flag'?"


def test_diff_of_patches(stack: Stack, world: World) -> None:
    raw = world.read("stacks/one/gamma/tool-flag.patch")
    assert stack("diff", "tool").out == raw[raw.index("diff --git") :]
    assert stack("diff", "one").out.count("diff --git") == 4
    assert stack("diff", "one", "--stat").out.splitlines()[:2] == ["one/gamma/hook-main", "  gamma/main.py  +1 -1"]
    found = parsed(stack("diff", "tool", "--json"))
    assert keys(found) == verb("diff")
    assert found["diffs"][0]["diff"] == raw[raw.index("diff --git") :]
    assert stack("diff", "gama").refused() == "unknown patch, series or upstream 'gama': did you mean 'gamma'?"


def test_diff_of_everything(stack: Stack) -> None:
    whole = parsed(stack("diff", "--json"))["diffs"]
    assert [each["upstream"] for each in whole] == ["gamma", "alpha", "beta"]
    assert {each["patch"] for each in whole} == {None}
    assert [file["path"] for file in whole[0]["files"]] == ["gamma/main.py", "gamma/tool.py"]
    assert "+limit, fixed" in whole[0]["diff"]
    assert stack("diff", "gamma").out == whole[0]["diff"]


def logged(stack: Stack) -> list[dict[str, Any]]:
    found = parsed(stack("log", "--json"))
    assert not found["switches"] or keys(found) <= verb("log")
    return list(found["switches"])


def test_log(stack: Stack) -> None:
    assert stack("log").out == "nothing is recorded: no command has changed this stack in this folder\n"
    stack(*REBASE)
    [moved] = logged(stack)
    moves = [(pin["upstream"], pin["from"], pin["to"]) for pin in moved["pins"]]
    assert moves == [("gamma", "v2.0", "v2.1"), ("alpha", "v1.0", "v1.1")]
    assert moved["landed"] == [{"patch": "two/gamma/fix-limit.patch", "release": "v2.1"}]
    assert (moved["removed"], moved["undone"]) == ([], False)
    assert "one/gamma/tool-flag.patch" in moved["rewritten"]
    out = stack("log").out
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d  rebase gamma --onto v2\.1\n  gamma v2\.0 -> v2\.1, alpha v1\.0 -> v1\.1", out)
    assert "  1 patch landed and left: two/gamma/fix-limit (in v2.1)\n" in out


def test_log_of_what_was_undone(stack: Stack) -> None:
    stack(*REBASE)
    [before] = logged(stack)
    stack("undo")
    [after] = logged(stack)
    assert after["undone"]
    same = ("title", "pins", "added", "removed", "landed", "rewritten")
    assert [after[name] for name in same] == [before[name] for name in same]
    assert "undone: `stack redo` repeats it" in stack("log").out


def test_log_where_a_person_edited_since(stack: Stack, world: World) -> None:
    """The journal knows what the switch wrote, whatever became of the files."""
    stack(*REBASE)
    before = logged(stack)
    world.edit("pins.toml", "v2.1", "v9.9")
    (world.root / "stacks/two/series.toml").unlink()
    assert logged(stack) == before


def test_log_of_what_was_undone_stays_as_it_was(stack: Stack, world: World) -> None:
    stack(*REBASE)
    stack("undo")
    [before] = logged(stack)
    world.edit("pins.toml", "v2.0", "v9.9")
    (world.root / "stacks/two/series.toml").unlink()
    assert logged(stack) == [before]


def test_log_is_in_the_order_of_time(stack: Stack, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000, 9000, 1000))
    monkeypatch.setattr("stack.model.switch.time.time", lambda: float(next(clock)))
    for number in range(2):
        switch.apply(world.root, {"stacks/notes": b"%d" % number}, title=f"note {number}")
    switch.undo(world.root)
    switch.apply(world.root, {"stacks/notes": b"x"}, title="later")
    monkeypatch.undo()
    found = [(each["title"], each["undone"], each["time"]) for each in logged(stack)]
    assert found == [("later", False, 4000), ("note 1", True, 3000), ("note 0", False, 1000)]


def test_log_of_a_history_of_an_older_version(stack: Stack, world: World) -> None:
    """It kept no copies and no landings: what the files say is used while they are as the switch wrote them."""
    stack(*REBASE)
    before = logged(stack)
    kept = world.root / ".stack/history/1"
    for file in kept.glob("*.kept"):
        file.unlink()
    journal = json.loads((kept / "switch.json").read_text())
    assert journal.pop("landed") == {"two/gamma/fix-limit.patch": "v2.1"}
    (kept / "switch.json").write_text(json.dumps(journal))
    assert logged(stack) == before
    world.edit("pins.toml", "v2.1", "v9.9")
    assert logged(stack)[0]["pins"] == []
    assert "pins.toml" in logged(stack)[0]["other"]


def test_log_of_a_landing_that_no_series_records(stack: Stack, world: World) -> None:
    """A series records no landed patch of a vendored upstream; the journal does."""
    gone = "two/beta/wide-load.patch"
    switch.apply(world.root, {f"stacks/{gone}": None}, title="rebase", landed={gone: "4.6"})
    [found] = logged(stack)
    assert (found["landed"], found["removed"]) == ([{"patch": gone, "release": "4.6"}], [])
    stack("undo")
    assert logged(stack)[0]["landed"] == found["landed"]


def test_log_of_lanes(stack: Stack) -> None:
    stack("lane", "add", "old")
    stack(*REBASE, "--lane", "old")
    moved, begun = logged(stack)
    assert begun["pins"] == []
    assert moved["pins"] == [
        {"upstream": "gamma", "from": "v2.0", "to": "v2.1", "lane": "old"},
        {"upstream": "alpha", "from": "v1.0", "to": "v1.1", "lane": "old"},
    ]
    assert moved["landed"] == [{"patch": "lanes/old/two/gamma/fix-limit.patch", "release": "v2.1"}]
    assert "  gamma v2.0 -> v2.1 (lane old), alpha v1.0 -> v1.1 (lane old)\n" in stack("log").out
    assert parsed(stack("status", "--json"))["moved"] is None
    assert "Since gamma v2.0 -> v2.1, alpha" not in stack("status").out


def test_log_names_all_patches_with_v(stack: Stack, world: World) -> None:
    names = [f"stacks/one/gamma/x{number}.patch" for number in range(5)]
    switch.apply(world.root, dict.fromkeys(names, b"x"), title="five")
    assert stack("log").out.endswith("  5 patches added\n")
    assert "one/gamma/x4" in stack("log", "-v").out


def test_log_follows_one_file_through_several_switches(stack: Stack) -> None:
    stack("pins", "set", "gamma", "v2.1", "--allow-mismatch")
    stack("pins", "set", "gamma", "v2.2", "--allow-mismatch")
    assert [each["pins"] for each in logged(stack)] == [
        [{"upstream": "gamma", "from": "v2.1", "to": "v2.2", "lane": None}],
        [{"upstream": "gamma", "from": "v2.0", "to": "v2.1", "lane": None}],
    ]


@pytest.mark.parametrize("name", ["tool", "gamma"])
def test_a_diff_applies(stack: Stack, world: World, name: str) -> None:
    done = subprocess.run(
        ["git", "apply", "--numstat"], input=stack("diff", name).out, text=True, capture_output=True, check=True
    )
    assert "gamma/tool.py" in done.stdout
