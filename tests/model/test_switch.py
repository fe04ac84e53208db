# SPDX-License-Identifier: Apache-2.0
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stack.model import stack, switch

from ..sweeps import sweep
from . import crash_injection
from .factories import FILES, git, refusal, snapshot, write

STATE = switch.FOLDER


def run(place: Path, what: str, *args: object) -> dict[str, Any]:
    """Run a function of `crash_injection` on `place`, whose folder `root` is the stack."""
    command = [sys.executable, "-W", "error", str(Path(crash_injection.__file__)), what, str(place), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "said": done.stderr}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "root", FILES)
    (tmp_path / "work").mkdir()
    return tmp_path


# --- switching ------------------------------------------------------------------------------------------------------------


def test_applies_and_takes_back(root: Path) -> None:
    before = snapshot(root)
    gone = "stacks/gating/vllm/gate-kernels.patch"
    changed = switch.apply(
        root,
        {"pins.toml": b"new", "stacks/a/b/c": b"added", gone: None, "stacks/stack.toml": before["stacks/stack.toml"]},
        title="try",
    )
    assert changed == ("pins.toml", "stacks/a/b/c", gone)
    after = {**before, "pins.toml": b"new", "stacks/a/b/c": b"added"}
    del after[gone]
    assert snapshot(root) == after
    assert not (root / gone).parent.exists()
    (record,) = switch.history(root)
    assert (record.number, record.title, list(record.changes)) == (1, "try", list(changed))
    assert record.changes[gone] is None
    assert switch.undo(root) == record
    assert snapshot(root) == before
    assert not (root / "stacks/a").exists()
    assert switch.history(root) == ()
    assert switch.redo(root).title == "try"
    assert snapshot(root) == after
    assert [one.title for one in switch.history(root)] == ["try"]
    assert switch.undone(root) == ()
    switch.undo(root)
    assert snapshot(root) == before


def test_nothing_to_change(root: Path) -> None:
    before = snapshot(root)
    assert (
        switch.apply(root, {"pins.toml": before["pins.toml"], "stacks/none": None, "stacks/no/folder": None}, title="nothing")
        == ()
    )
    assert switch.history(root) == ()
    assert snapshot(root) == before


def test_takes_back_one_after_the_other(root: Path) -> None:
    for number in range(5):
        switch.apply(root, {"stacks/notes": b"%d" % number}, title=f"note {number}")
    assert [record.number for record in switch.history(root)] == [1, 2, 3, 4, 5]
    assert [switch.undo(root).title for _ in range(2)] == ["note 4", "note 3"]
    assert (root / "stacks/notes").read_bytes() == b"2"
    switch.apply(root, {"stacks/notes": b"x"}, title="other")
    assert [record.title for record in switch.history(root)] == ["note 0", "note 1", "note 2", "other"]
    while switch.history(root):
        switch.undo(root)
    assert not (root / "stacks/notes").exists()
    assert refusal(root, switch.undo, root) == "nothing to undo: no switch is recorded for this stack"


def test_makes_again_what_was_taken_back(root: Path) -> None:
    assert refusal(root, switch.redo, root) == "nothing to redo: no switch of this stack was taken back"
    for number in range(3):
        switch.apply(root, {"stacks/notes": b"%d" % number, f"stacks/f{number}": b"f"}, title=f"note {number}")
    while switch.history(root):
        switch.undo(root)
    assert [switch.redo(root).title for _ in range(2)] == ["note 0", "note 1"]
    assert (root / "stacks/notes").read_bytes() == b"1"
    # Another switch of the same file comes between: redo would lose it.
    switch.apply(root, {"stacks/notes": b"x"}, title="other")
    before = snapshot(root)
    line = "stacks/notes was changed since the undo of `note 2`: redo would lose that: copy your change, "
    line += "put the file back (`git checkout stacks/notes`), then redo"
    assert refusal(root, switch.redo, root) == line
    assert snapshot(root) == before
    switch.undo(root)
    assert switch.redo(root).title == "other"
    switch.undo(root)
    switch.undo(root)
    assert (root / "stacks/notes").read_bytes() == b"0"
    assert [switch.redo(root).title for _ in range(2)] == ["note 1", "other"]


def test_a_switch_for_good_is_not_taken_back(root: Path) -> None:
    switch.apply(root, {"stacks/notes": b"1"}, title="one")
    switch.apply(root, {"stacks/kept": b"k"}, title="kept", for_good=True)
    assert [record.title for record in switch.history(root)] == ["one"]
    switch.undo(root)
    assert (root / "stacks/kept").read_bytes() == b"k"
    assert not (root / "stacks/notes").exists()
    assert list((root / STATE / "history").iterdir()) == []


def test_history_is_bounded(root: Path) -> None:
    for number in range(switch.KEPT + 3):
        switch.apply(root, {"stacks/notes": b"%d" % number}, title=f"note {number}")
    titles = [record.title for record in switch.history(root)]
    assert titles == [f"note {number}" for number in range(3, switch.KEPT + 3)]
    assert len(list((root / STATE / "history").iterdir())) == switch.KEPT


def test_moves_a_file_within_its_only_folder(root: Path) -> None:
    switch.apply(root, {"stacks/f/b": b"1"}, title="one")
    switch.apply(root, {"stacks/f/a": b"1", "stacks/f/b": None}, title="two")
    switch.apply(root, {"stacks/f/a": None, "stacks/f/b": b"1"}, title="three")
    assert [path.name for path in (root / "stacks/f").iterdir()] == ["b"]


def test_git_does_not_see_it(root: Path) -> None:
    git("init", "--quiet", cwd=root)
    git("add", ".", cwd=root)
    switch.apply(root, {"pins.toml": b"new"}, title="try")
    assert git("status", "--porcelain", "--untracked-files=all", cwd=root).decode().splitlines() == [
        *(f"A  {path}" if path != "pins.toml" else "AM pins.toml" for path in sorted(FILES))
    ]


def test_reading_writes_nothing(root: Path) -> None:
    with switch.reading(root):
        pass
    switch.recover(root)
    assert switch.history(root) == ()
    assert not (root / STATE).exists()


# --- refused --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"edited", None])
def test_undo_would_lose_a_change(root: Path, content: bytes | None) -> None:
    switch.apply(root, {"pins.toml": b"new", "stacks/notes": b"n"}, title="set pins")
    write(root, {"pins.toml": content})
    before = snapshot(root)
    assert refusal(root, switch.undo, root) == (
        "pins.toml was changed since `set pins`: undo would lose that: copy your change, put the file back "
        "(`git checkout pins.toml`), then undo"
    )
    assert snapshot(root) == before
    write(root, {"pins.toml": b"new"})
    assert switch.undo(root).title == "set pins"


def test_undo_would_lose_a_file_that_came_back(root: Path) -> None:
    switch.apply(root, {"pins.toml": None}, title="remove")
    write(root, {"pins.toml": b"mine"})
    assert refusal(root, switch.undo, root).startswith("pins.toml was changed since `remove`")
    assert (root / "pins.toml").read_bytes() == b"mine"


@pytest.mark.parametrize(("path", "was"), [("pins.toml", b"old"), ("pins.toml", None), ("stacks/none", b"x")])
def test_expected(root: Path, path: str, was: bytes | None) -> None:
    before = snapshot(root)
    line = refusal(root, switch.apply, root, {"stacks/a": b"b"}, title="t", expected={path: was})
    assert line == f"{path} was changed while this command ran: nothing was written: run it again"
    assert snapshot(root) == before
    assert switch.history(root) == ()
    switch.apply(root, {"stacks/a": b"b"}, title="t", expected={"pins.toml": before["pins.toml"], "stacks/none": None})
    assert (root / "stacks/a").read_bytes() == b"b"


@pytest.mark.parametrize("path", ["stacks/stack.toml/x", "stacks/stack.toml/x/y", "stacks/gating"])
def test_something_else_in_the_way(root: Path, path: str) -> None:
    before = snapshot(root)
    line = refusal(root, switch.apply, root, {"stacks/a": b"b", path: b"x", "pins.toml": None}, title="t")
    assert "cannot be written (Not a directory)" in line or "is a folder" in line
    assert snapshot(root) == before
    assert stack.load(root).root == root
    assert switch.apply(root, {"stacks/a": b"b"}, title="t") == ("stacks/a",)


def test_a_file_in_place_of_the_folder(root: Path) -> None:
    (root / STATE).write_text("")
    line = refusal(root, switch.apply, root, {"stacks/a": b"b"}, title="t")
    assert line == "ROOT cannot be written (Not a directory): free disk space or check the folder's rights"
    assert not (root / "stacks/a").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_rights(root: Path) -> None:
    root.chmod(0o555)
    try:
        line = refusal(root, switch.apply, root, {"stacks/a": b"b"}, title="t")
    finally:
        root.chmod(0o755)
    assert line == "ROOT cannot be written (Permission denied): free disk space or check the folder's rights"


@pytest.mark.parametrize("limit", [1, 100, 4000])
def test_full_disk(place: Path, limit: int) -> None:
    """Too little room for a small file, for the journal, for a large file: nothing changes, and the next switch works."""
    root = place / "root"
    before = snapshot(root)
    done = run(place, "full", limit)
    assert done["status"] == 3
    assert "cannot be written (File too large)" in done["said"]
    assert snapshot(root) == before
    stack.load(root)
    assert switch.history(root) == ()
    assert run(place, "full", 10_000)["status"] == 0
    assert set(snapshot(root)) == {*before, "stacks/a", "stacks/b", "stacks/new/c"} - {"pins.toml"}
    switch.undo(root)
    assert snapshot(root) == before


# --- company --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [fcntl.LOCK_SH, fcntl.LOCK_EX])
def test_waits_for_others_and_gives_up(root: Path, monkeypatch: pytest.MonkeyPatch, how: int) -> None:
    switch.apply(root, {"stacks/notes": b"1"}, title="first")
    monkeypatch.setattr(switch, "_WAIT", 0.1)
    with (root / STATE / "lock").open() as handle:
        fcntl.flock(handle, how)
        line = refusal(root, switch.apply, root, {"stacks/notes": b"2"}, title="second")
        assert line == "another stack command is at work on ROOT: wait until it has ended"
        assert refusal(root, switch.undo, root) == line
    assert (root / "stacks/notes").read_bytes() == b"1"
    assert switch.apply(root, {"stacks/notes": b"2"}, title="second") == ("stacks/notes",)


def test_several_at_once(place: Path) -> None:
    root = place / "root"
    assert run(place, "company", 3, 4)["failed"] == 0
    last = [(root / f"stacks/own/{number}").read_bytes() for number in range(3)]
    assert last == [b"0 3", b"1 3", b"2 3"]
    assert (root / "stacks/common").read_bytes() in last
    assert [record.number for record in switch.history(root)] == list(range(1, 13))
    while switch.history(root):
        switch.undo(root)
    assert snapshot(root) == FILES


def test_the_first_switch_comes_while_another_reads(root: Path) -> None:
    """There is no lock to hold yet: the reader is told."""

    def read() -> None:
        with switch.reading(root):
            switch.apply(root, {"pins.toml": b"new"}, title="first")

    assert refusal(root, read) == "ROOT was changed while this command read it: run it again"


def two_files(root: Path) -> list[bytes]:
    return [(root / name).read_bytes() for name in ("stacks/one", "stacks/two")]


def test_a_writer_is_killed_while_a_reader_waits(place: Path) -> None:
    """The reader gets the lock of a writer that has left a switch half-way: it reads nothing, writes nothing and says how to go on."""
    root = place / "root"
    switch.apply(root, {"stacks/one": b"1", "stacks/two": b"1"}, title="first")
    done = run(place, "half_way", "read")
    assert (done["half"], done["status"]) == (1, 3)
    assert "`second` was interrupted" in done["said"]
    assert "stack undo --finish" in done["said"]
    assert two_files(root) == [b"2", b"1"]
    assert switch.recover(root)
    assert two_files(root) == [b"2", b"2"]
    assert not switch.recover(root)


@pytest.mark.parametrize(
    ("then", "after", "titles"),
    [("apply", [b"3", b"2"], ["first", "second", "third"]), ("undo", [b"1", b"1"], ["first"])],
)
def test_a_writer_finishes_the_switch_of_a_killed_one_and_says_so(
    place: Path, then: str, after: list[bytes], titles: list[str]
) -> None:
    root = place / "root"
    switch.apply(root, {"stacks/one": b"1", "stacks/two": b"1"}, title="first")
    done = run(place, "half_way", then)
    assert (done["half"], done["status"]) == (1, 0)
    assert "`second`" in done["said"]
    assert two_files(root) == after
    assert [record.title for record in switch.history(root)] == titles


@pytest.mark.parametrize("verb", ["undo", "redo"])
def test_an_interrupted_undo_or_redo_is_named_and_finished(root: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    switch.apply(root, {"stacks/notes": b"1"}, title="first")
    if verb == "redo":
        switch.undo(root)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(switch, "_finish", lambda place: (_ for _ in ()).throw(KeyboardInterrupt))
        getattr(switch, verb)(root)
    assert refusal(root, stack.load, root) == (
        f"`{verb} of first` was interrupted while it changed ROOT: finish it: stack undo --finish"
    )
    switch.recover(root)
    assert (root / "stacks/notes").exists() == (verb == "redo")
    assert [record.title for record in switch.history(root)] == ["first"] * (verb == "redo")
    assert [record.title for record in switch.undone(root)] == ["first"] * (verb == "undo")


# --- killed ---------------------------------------------------------------------------------------------------------------


@sweep("stride", 4, 1)
@pytest.mark.parametrize("what", ["first", "later", "undo", "redo"])
@pytest.mark.slow
def test_killed_at_every_step(place: Path, what: str, stride: int) -> None:
    seen = run(place, "steps", what, stride)
    # The steps before the announcement and those after it; the numbers say that they were met at all.
    assert seen["old"] > 20 // stride
    assert seen["new"] > 20 // stride
    assert seen["old"] + seen["new"] == seen["steps"]


def test_killed_at_every_step_would_find_a_mix(place: Path) -> None:
    with pytest.raises(AssertionError, match="a mix after step"):
        run(place, "steps", "naive", 1)


@pytest.mark.slow
def test_killed_at_any_time_while_others_read(place: Path) -> None:
    seen = run(place, "kills", 100)
    assert seen["kills"] == 100
    assert seen["interrupted"] > 0


def test_a_title_that_others_have_chosen_is_written_as_it_can_be_read_again(root: Path) -> None:
    """Such as the name of a branch: what is announced must not be refused before it is finished."""
    switch.apply(root, {"stacks/notes": b"1"}, title="import \x1b[2J \x9bmine\u202e \udcff")
    switch.apply(root, {"stacks/notes": b"2"}, title="second")
    assert [one.title for one in switch.history(root)] == ["import ?[2J ?mine? ?", "second"]
    assert (root / "stacks/notes").read_bytes() == b"2"
