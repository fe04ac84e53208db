# SPDX-License-Identifier: Apache-2.0
"""`stack resolutions`: what is stored, seen and taken away."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stack.carry.resolutions import Beside, Resolution, Resolutions, files, record

from ..carry.world import World, numbered
from .conftest import Stack

FIRST = numbered("main"), numbered("main", {10: "upstream's"}), numbered("main", {10: "hook"})
PATCH = "one/gamma/hook-main.patch"


@pytest.fixture
def one(world: World) -> Resolution:
    """The only resolution of the world's stack."""
    person = numbered("main", {10: "hook\nupstream's"})
    new = record("gamma/main.py", *FIRST, person, upstream="gamma", patch=PATCH, rung="v2.2")
    put(world, *new)
    return new[0]


def put(world: World, *new: Resolution) -> None:
    folder = world.root / "stacks/resolutions"
    folder.mkdir(exist_ok=True)
    for name, data in files(Resolutions.load(folder), new).items():
        (folder / name).write_bytes(data)


def test_list(stack: Stack, one: Resolution) -> None:
    head, _, row = stack("resolutions", "list").out.splitlines()
    assert head.split() == ["key", "path", "patch", "rung", "lines"]
    assert row.split() == [one.key, "gamma/main.py", PATCH, "v2.2", "+2"]
    assert json.loads(stack("resolutions", "list", "--json").out) == {
        "schema": "stack/resolutions-list/1",
        "resolutions": [
            {"key": one.key, "upstream": "gamma", "patch": PATCH, "path": "gamma/main.py", "rung": "v2.2", "lines": 2}
        ],
    }


def test_none_yet(stack: Stack, world: World) -> None:
    before = world.files()
    assert stack("resolutions", "list").out == "no resolutions\n"
    assert json.loads(stack("resolutions", "list", "--json").out)["resolutions"] == []
    assert stack("resolutions", "show", "0123").refused() == "no resolution 0123: `stack resolutions list` shows all"
    assert (world.files(), (world.root / ".stack").exists()) == (before, False)


def test_show(stack: Stack, one: Resolution) -> None:
    shown = stack("resolutions", "show", one.key[:4])
    assert (shown.code, shown.err) == (0, "")
    assert shown.out == (
        f"upstream  gamma\npatch     {PATCH}\npath      gamma/main.py\nrung      v2.2\n\n"
        "main 7\nmain 8\nmain 9\n<<<<<<< ours: gamma v2.2\nupstream's\n||||||| base\nmain 10\n=======\nhook\n"
        f">>>>>>> theirs: {PATCH}\nmain 11\nmain 12\nmain 13\n\n"
        "replaced by 2 lines\nhook\nupstream's\n"
    )
    texts = {name: getattr(one, name) for name in ("before", "base", "ours", "theirs", "after", "resolved")}
    found = json.loads(stack("resolutions", "show", one.key, "--json").out)
    assert (found.pop("schema"), found.pop("beside")) == ("stack/resolutions-show/1", [])
    assert {name: found.pop(name) for name in texts} == texts
    assert found == json.loads(stack("resolutions", "list", "--json").out)["resolutions"][0]


def test_show_what_was_changed_beside_it(stack: Stack, world: World, one: Resolution) -> None:
    put(world, replace(one, beside=(Beside("gamma/tool.py", "tool 1\n", "tool 2\n", "hook\n", "tool 3\n"),)))
    shown = stack("resolutions", "show", one.key).out
    assert shown.endswith("upstream's\n\nand in gamma/tool.py\ntool 1\n-tool 2\n+hook\ntool 3\n")
    assert json.loads(stack("resolutions", "show", one.key, "--json").out)["beside"] == [
        {"path": "gamma/tool.py", "before": "tool 1\n", "old": "tool 2\n", "new": "hook\n", "after": "tool 3\n"}
    ]


def on_a_terminal(world: World, *args: str, no_colour: str | None = None) -> str:
    """What `stack ARGS` prints there."""
    environment = os.environ | ({} if no_colour is None else {"NO_COLOR": no_colour})
    wire = "from stack.cli import cli, main, resolutions as one; cli.add_command(one.command); main()"
    terminal, its = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", wire, "--root", str(world.root), *args], stdout=its, env=environment)
    os.close(its)
    said = b""
    with contextlib.suppress(OSError):  # how Linux says that the other end has gone
        while part := os.read(terminal, 4096):
            said += part
    os.close(terminal)
    assert process.wait() == 0
    return said.decode().replace("\r\n", "\n")


def test_colours_on_a_terminal(stack: Stack, world: World, one: Resolution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = on_a_terminal(world, "resolutions", "show", one.key)
    assert "\x1b[32mhook\x1b[0m\n" in coloured
    assert "\x1b[36mupstream's\x1b[0m\n" in coloured
    plain = stack("resolutions", "show", one.key).out
    assert on_a_terminal(world, "resolutions", "show", one.key, no_colour="1") == plain


def test_a_text_does_not_command_the_terminal(stack: Stack, world: World) -> None:
    theirs = numbered("main", {10: "\x1b]0;title\x07\u202e"})
    put(world, *record("a.py", FIRST[0], FIRST[1], theirs, theirs, upstream="gamma", patch=PATCH, rung="v2.2"))
    [key] = (row["key"] for row in json.loads(stack("resolutions", "list", "--json").out)["resolutions"])
    shown = stack("resolutions", "show", key).out
    assert shown.count("\\u001b]0;title\\u0007\\u202e\n") == 2
    assert all(char.isprintable() or char == "\n" for char in shown)


def test_drop_and_undo(stack: Stack, world: World, one: Resolution) -> None:
    before = world.files()
    digest = json.loads(stack("status", "--json").out)["digest"]
    dropped = stack("resolutions", "drop", one.key[:6])
    assert (dropped.code, dropped.out) == (0, f"dropped: {one.key}; `stack undo` takes it back\n")
    assert before.keys() - world.files().keys() == {f"stacks/resolutions/{one.key}.toml"}
    assert json.loads(stack("status", "--json").out)["digest"] == digest
    assert stack("undo").out == f"undone: resolutions drop {one.key} (1 file)\n"
    assert world.files() == before
    assert json.loads(stack("resolutions", "drop", one.key, one.key, "--json").out)["dropped"] == [one.key]


def test_all_or_none_are_dropped(stack: Stack, world: World, one: Resolution) -> None:
    before = world.files()
    assert stack("resolutions", "drop", one.key, "0000").refused().startswith("no resolution 0000")
    assert world.files() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", "01"), "'01' is no key: name at least 4 of its hexadecimal digits"),
        (("show", "../../pins"), "'../../pins' is no key: "),
        (("drop",), "Missing argument 'KEY...': see `stack resolutions drop --help`"),
        (("show",), "Missing argument 'KEY': see `stack resolutions show --help`"),
        (("drop", "nothing"), "'nothing' is no key: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage(stack: Stack, one: Resolution, args: tuple[str, ...], message: str) -> None:
    assert stack("resolutions", *args).refused().startswith(message)


@pytest.mark.parametrize("args", [("list",), ("show", "0123"), ("drop", "0123")])
def test_a_file_that_is_wrong(stack: Stack, world: World, one: Resolution, args: tuple[str, ...]) -> None:
    file = f"stacks/resolutions/{one.key}.toml"
    world.edit(file, 'rung = "v2.2"', 'rong = "v2.2"')
    said = stack("resolutions", *args).refused()
    assert said == f"{world.root / file}: rung is missing: add it"


def test_no_stack_here(stack: Stack, tmp_path: Path) -> None:
    refused = stack("resolutions", "list", root=tmp_path).refused()
    assert refused.startswith(f"{tmp_path}/pins.toml is missing: check --root")
    assert "init --git URL" in refused
