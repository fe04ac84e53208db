# SPDX-License-Identifier: Apache-2.0
"""A checkout of somebody else's making: verbs read it, and write nothing outside of what they own."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.carry import untrusted
from stack.model import checkout, switch
from stack.store import git

from ..carry.world import World
from .conftest import Stack

READING = [("status",), ("lint",), ("pins", "show"), ("undo", "--list"), ("resolutions", "list")]
WRITING = [
    ("refresh", "gamma", "none"),
    ("pins", "set", "gamma", "v2.1"),
    ("resolutions", "drop", "0123456789abcdef"),
    ("rebase", "gamma", "--onto", "v2.1"),
    ("export-pr", "--status"),
    ("undo", "--finish"),
    ("undo",),
    ("redo",),
]


def interrupted(root: Path) -> bytes:
    """Leave a switch of this user half-way; returns what `pins.toml` held before."""
    before = (root / "pins.toml").read_bytes()
    finish = switch._finish
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(switch, "_finish", lambda place: (_ for _ in ()).throw(KeyboardInterrupt))
        switch.apply(root, {"pins.toml": before + b"# finished\n"}, title="half a switch")
    assert switch._finish is finish
    assert (root / "pins.toml").read_bytes() == before
    return before


@pytest.mark.parametrize("args", READING)
def test_reading_verbs_finish_no_switch_and_say_how_to(world: World, stack: Stack, args: tuple[str, ...]) -> None:
    before = interrupted(world.root)
    said = stack(*args).refused()
    assert "half a switch" in said
    assert "stack undo --finish" in said
    assert (world.root / "pins.toml").read_bytes() == before
    assert (world.root / ".stack/switch.json").exists()


@pytest.mark.parametrize("args", WRITING)
def test_writing_verbs_finish_a_switch_and_say_so(
    world: World, stack: Stack, args: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    before = interrupted(world.root)
    done = stack(*args)
    assert "finished `half a switch`" in done.err + caplog.text
    assert not (world.root / ".stack/switch.json").exists()
    if args == ("undo",):
        assert (world.root / "pins.toml").read_bytes() == before
    else:
        assert b"# finished" in (world.root / "pins.toml").read_bytes()


def lock_that_is_a_link(root: Path, outside: Path) -> None:
    (root / ".stack").mkdir()
    (root / ".stack/lock").symlink_to(outside)


def verdicts_that_are_a_link(root: Path, outside: Path) -> None:
    (root / ".stack").mkdir()
    (root / ".stack/verdicts").symlink_to(outside.parent)


def linked_folder(root: Path, outside: Path) -> None:
    (root / ".stack").symlink_to(outside.parent)


def foreign_journal(root: Path, outside: Path) -> None:
    (root / ".stack/pending").mkdir(parents=True)
    (root / ".stack/pending/0.new").write_bytes(b"planted")
    journal = {"title": "x", "number": 1, "changes": {"pins.toml": hashlib.sha256(b"planted").hexdigest()}}
    (root / ".stack/switch.json").write_text(json.dumps(journal))


def tracked(root: Path, outside: Path) -> None:
    (root / ".stack").mkdir()
    (root / ".stack/kept").write_text("x")
    git.run(["init", "--quiet"], cwd=root)
    git.run(["add", "--force", ".stack"], cwd=root)


def tracked_in_the_folder_above(root: Path, outside: Path) -> None:
    (root / ".stack").mkdir()
    (root / ".stack/kept").write_text("x")
    git.run(["init", "--quiet"], cwd=root.parent)
    git.run(["add", "--force", f"{root.name}/.stack"], cwd=root.parent)


@pytest.mark.parametrize(
    "harm",
    [lock_that_is_a_link, verdicts_that_are_a_link, linked_folder, foreign_journal, tracked, tracked_in_the_folder_above],
)
@pytest.mark.parametrize("args", [*READING, ("undo", "--finish"), ("undo",), ("redo",), ("rebase", "gamma", "--onto", "v2.1")])
def test_a_hostile_folder_is_refused(
    world: World, stack: Stack, tmp_path: Path, harm: Callable[[Path, Path], None], args: tuple[str, ...]
) -> None:
    outside = tmp_path / "outside/precious"
    outside.parent.mkdir()
    outside.write_text("precious")
    before = (world.root / "pins.toml").read_bytes()
    harm(world.root, outside)
    if args == ("undo", "--list") and harm is foreign_journal:
        assert "switch.json" in stack(*args).refused()
    assert ".stack" in stack(*args).refused()
    assert outside.read_text() == "precious"
    assert [path.name for path in outside.parent.iterdir()] == ["precious"]
    assert (world.root / "pins.toml").read_bytes() == before


def test_our_own_folder_in_a_git_repository_is_fine(world: World, stack: Stack) -> None:
    git.run(["init", "--quiet"], cwd=world.root)
    switch.apply(world.root, {"stacks/notes": b"x"}, title="mine")
    git.run(["add", "."], cwd=world.root)
    assert stack("status").code == 0


def test_a_program_of_the_checkouts_git_configuration_does_not_run(world: World, stack: Stack, tmp_path: Path) -> None:
    git.run(["init", "--quiet"], cwd=world.root)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    git.run(["config", "core.fsmonitor", str(program)], cwd=world.root)
    switch.apply(world.root, {"stacks/notes": b"x"}, title="mine")
    assert stack("status").code == 0
    assert not (tmp_path / "ran").exists()


def pipe_for_head(root: Path) -> None:
    (root / ".git/HEAD").unlink()
    os.mkfifo(root / ".git/HEAD")


def pipe_in_the_configuration(root: Path) -> None:
    git.run(["config", "include.path", "pipe"], cwd=root)
    os.mkfifo(root / ".git/pipe")


@pytest.mark.parametrize("harm", [pipe_for_head, pipe_in_the_configuration])
def test_a_named_pipe_in_git_is_an_error_after_a_while(
    world: World, stack: Stack, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    git.run(["init", "--quiet"], cwd=world.root)
    switch.apply(world.root, {"stacks/notes": b"x"}, title="mine")
    harm(world.root)
    monkeypatch.setattr(untrusted, "_SECONDS", 0.5)
    assert "git ls-files gave no answer within 0.5 s: look for named pipes in .git" in stack("status").refused()


def test_a_copy_of_a_checkout_can_be_adopted(world: World, stack: Stack, tmp_path: Path) -> None:
    before = (world.root / "pins.toml").read_bytes()
    switch.apply(world.root, {"pins.toml": before + b"# new\n"}, title="mine")
    moved = world.root.rename(tmp_path / "moved")
    assert "stack undo --adopt" in stack("undo", root=moved).refused()
    assert "mine" in stack("undo", "--adopt", root=moved).out
    assert stack("undo", root=moved).code == 0
    assert (moved / "pins.toml").read_bytes() == before


def test_a_state_folder_that_cannot_be_written(world: World, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nothing could be taken back later: nothing is changed, and the line names the folder."""
    blocked = world.root.parent / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    before = (world.root / "pins.toml").read_bytes()
    assert checkout.identity(world.root) is None
    assert stack("status").code == 0
    assert "XDG_STATE_HOME" in stack("pins", "set", "gamma", "v2.1", "--allow-mismatch").refused()
    assert (world.root / "pins.toml").read_bytes() == before
