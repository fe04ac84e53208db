# SPDX-License-Identifier: Apache-2.0
"""`stack guard`, and guards in `check`, `rebase`, `forecast` and `report`, with releases from archives."""

import json

import pytest

from stack.model.stack import load

from ..carry.world import World
from .conftest import Stack, unwrapped

PACK = ("guard", "add", "pack", "--definition", "gamma/old.py::pack", "--reason", "our plug-in calls it")
LINE = ("guard", "add", "line", "--text", "gamma/main.py", "main 20", "--reason", "the line that we look for")
ONTO = ("rebase", "gamma", "--onto", "v2.1", "--with-required")


@pytest.fixture
def guarded(stack: Stack, world: World) -> Stack:
    (world.root / "plugin").mkdir()
    (world.root / "plugin/tool.py").write_bytes((world.root / "stacks/one/series.toml").read_bytes())
    assert stack(*PACK).code == stack(*LINE).code == 0
    return stack


def test_add_list_and_drop(guarded: Stack, world: World) -> None:
    listed = json.loads(guarded("guard", "list", "--json").out)["guards"]
    assert [(each["name"], each["kind"], each["upstream"]) for each in listed] == [
        ("pack", "definition", "gamma"),
        ("line", "text", "gamma"),
    ]
    assert "our plug-in calls it" in guarded("guard", "list").out
    assert ", 2 guards\n" in guarded("status").out
    assert guarded("guard", "check").out == "2 guards: 2 held\n"
    assert guarded("guard", "drop", "pack").out == "dropped 1 guard; `stack undo` takes it back\n"
    assert [guard.name for guard in load(world.root).guards] == ["line"]
    assert guarded("undo").code == 0
    assert [guard.name for guard in load(world.root).guards] == ["pack", "line"]


def test_a_target_that_is_nearly_right_is_named(stack: Stack, world: World) -> None:
    add = ("guard", "add", "near", "--reason", "we read it")
    refused = stack(*add, "--text", "main.py", "main 20", "--upstream", "gamma").refused()
    assert refused == "gamma: main.py does not exist: name the path in upstream's tree: gamma/main.py"
    assert (
        stack(*add, "--text", "ain.py", "main 20", "--upstream", "gamma")
        .refused()
        .endswith(": name a target that the pinned tree has")
    )
    refused = stack(*add, "--patched", "gamma.main.hook").refused()
    assert refused.endswith("is not package.module:Class.method: write a colon between the module and its attribute")


def test_a_broken_guard_stops_a_rebase_until_it_is_allowed(guarded: Stack, world: World) -> None:
    before = world.files()
    stopped = guarded(*ONTO)
    assert stopped.code == 1
    said = unwrapped(stopped.out)
    assert (
        "2 guards: 1 held, 1 broken broken pack: gamma/old.py is gone gamma/old.py since v2.1 guarded: our plug-in calls it"
        in said
    )
    assert "stack guard drop pack" in said
    assert "a guard is broken" in said
    assert "stack rebase gamma --onto v2.1 --with-required --allow-drift" in said
    assert world.files() == before
    document = json.loads(guarded(*ONTO, "--json").out)
    assert document["conclusion"] == "guard"
    assert [(each["guard"]["name"], each["state"]) for each in document["guards"]] == [("pack", "broken"), ("line", "held")]
    assert document["guards"][0]["cause"] == {
        "commit": document["guards"][0]["cause"]["commit"],
        "subject": "v2.1",
        "date": None,
        "release": True,
    }
    assert guarded(*ONTO, "--allow-drift").code == 0
    pack, line = load(world.root).guards
    assert world.commits["gamma v2.0"].startswith(pack.at)
    assert world.commits["gamma v2.1"].startswith(line.at)
    checked = guarded("check")
    assert checked.code == 1
    assert "broken pack: gamma/old.py is gone" in checked.out
    assert json.loads(guarded("check", "--json").out)["clean"] is False
    assert guarded("guard", "accept", "pack").refused().startswith("pack has nothing to accept: gamma/old.py is gone")


def test_forecast_and_report_show_guards(guarded: Stack) -> None:
    forecast = guarded("forecast", "gamma", "--against", "v2.1")
    assert forecast.code == 1
    assert forecast.out.endswith("gamma v2.1: 1 guard would break\n")
    assert json.loads(guarded("forecast", "gamma", "--against", "v2.1", "--json").out)["upstreams"][0]["breaks"] is True
    report = guarded("report", "gamma", "--onto", "v2.1")
    assert report.code == 1
    assert "guard pack broken: gamma/old.py is gone, since v2.1" in report.out


def test_accept_shows_what_has_changed_and_takes_it_over(stack: Stack, world: World) -> None:
    (world.root / "tool.py").write_text("a copy\n")
    add = ("guard", "add", "copy", "--copied", "tool.py", "gamma/tool.py", "--reason", "we have changed its end")
    assert stack(*add).code == 0
    assert stack(*ONTO, "--allow-drift").code == 0
    shown = stack("guard", "accept", "copy", "--dry-run")
    assert "6 % of gamma/tool.py has changed since it was copied to tool.py" in unwrapped(shown.out)
    assert "    +above 0\n" in shown.out
    assert stack("guard", "check").code == 1
    assert stack("guard", "accept", "copy").code == 0
    assert stack("guard", "check").code == 0


def test_each_lane_keeps_its_own_guards(guarded: Stack, world: World) -> None:
    assert guarded("lane", "add", "old").code == 0
    assert guarded(*ONTO, "--allow-drift").code == 0
    checked = json.loads(guarded("guard", "check", "--all-lanes", "--json").out)["lanes"]
    states = {lane["lane"]: [each["state"] for each in lane["guards"]] for lane in checked}
    assert states == {None: ["broken", "held"], "old": ["held", "held"]}
    assert load(world.root, "old").guards[1].at != load(world.root).guards[1].at
    assert guarded("guard", "drop", "pack").code == 0
    assert [guard.name for guard in load(world.root, "old").guards] == ["line"]
    assert guarded("guard", "drop", "line", "--lane", "old").code == 0
    assert [guard.name for guard in load(world.root).guards] == ["line"]
    assert load(world.root, "old").guards == ()


def test_find_proposes_what_the_code_replaces(stack: Stack, world: World) -> None:
    (world.root / "plugin").mkdir()
    (world.root / "plugin/hook.py").write_text(
        "from gamma import old\nimport gamma.old as again\n\n\ndef install():\n    old.pack = lambda: 1\n    setattr(again, 'pack', print)\n"
    )
    found = stack("guard", "find")
    assert found.code == 0
    assert "gamma.old:pack" in found.out
    assert "plugin/hook.py:6" in found.out
    assert stack("guard", "find", world.root / "plugin", "--add").code == 0
    [guard] = load(world.root).guards
    assert (guard.name, guard.target, guard.signature) == ("old-pack", "gamma.old:pack", "def ()")
    assert stack("guard", "find").out == "found nothing that is not guarded\n"


def test_control_characters_of_the_file_do_not_reach_the_terminal(guarded: Stack, world: World) -> None:
    file = world.root / "stacks/guards.toml"
    file.write_text(
        file.read_text().replace("our plug-in calls it", "\\u001b[2J\\u202ewhy").replace("main 20", "main \\u001b[1m")
    )
    for args in (
        ("guard", "list"),
        ("guard", "check"),
        ("check",),
        (*ONTO, "--dry-run"),
        ("report", "gamma", "--onto", "v2.1"),
    ):
        ran = guarded(*args)
        assert ran.code in (0, 1), ran
        assert "\x1b" not in ran.out + ran.err
        assert "\u202e" not in ran.out + ran.err


def test_a_file_that_lies_stops_every_command_with_one_line(guarded: Stack, world: World) -> None:
    file = world.root / "stacks/guards.toml"
    file.write_text(file.read_text().replace("gamma/old.py::pack", "../../etc/passwd::pack"))
    for args in (("status",), ("check",), ("guard", "list", "--json"), ONTO):
        assert "pack.definition names a file that is not a path below the folder" in guarded(*args).refused()


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("x", "--definition", "../x.py::f"), "names a file that is not a path below the folder"),
        (("x", "--definition", "gamma/old.py"), "names no definition"),
        (("x", "--definition", "gamma/old.py::f("), "has a name that is not one of Python"),
        (("X!", "--definition", "gamma/old.py::pack"), "cannot name a guard"),
        (("x", "--patched", "gamma.old"), "is not package.module:Class.method"),
        (("x", "--pattern", "gamma/old.py", "*" * 500), "has more than 400 characters"),
        (("x", "--copied", "../outside.py", "gamma/old.py"), "is not a path below the folder"),
        (("x", "--copied", "plugin/none.py", "gamma/old.py"), "plugin/none.py is missing"),
        (("x", "--text", "gamma/old.py", "pack", "--upstream", "nobody"), "nobody"),
        (("x", "--text", "gamma/old.py", "pack", "--pattern", "gamma/old.py", "pack"), "give exactly one of"),
        (("x", "--text", "gamma/old.py", "pack", "--at", "v2.0"), "--at goes with --copied"),
    ],
)
def test_what_cannot_be_a_guard_is_refused(stack: Stack, world: World, args: tuple[str, ...], why: str) -> None:
    before = world.files()
    assert why in stack("guard", "add", *args, "--reason", "why").refused()
    assert world.files() == before
