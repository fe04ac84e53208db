# SPDX-License-Identifier: Apache-2.0
"""What a review found: journals that others have written, trees that stand elsewhere, caches of other projects."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import worktree
from stack.carry.upstream_stores import Place, Stores
from stack.model import checkout, stack, switch
from stack.store import git
from stack.store.sources import obtain

from ..store.factories import Remote


def small_stack(root: Path, remote: Remote, commit: str) -> Path:
    root.mkdir()
    (root / "stacks").mkdir()
    (root / "stacks/stack.toml").write_text("series = []\n")
    archive = 'archive = { package = "up", version = "1.0" }'
    (root / "pins.toml").write_text(f'[up]\ngit = "{remote.url}"\ntag = "v1.0"\ncommit = "{commit}"\n{archive}\n')
    return root


@pytest.fixture
def remote(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "remote")
    made.commit({"a.py": b"a = 1\n", "deep/er/b.py": b"b = 2\n" * 50})
    made.tag("v1.0")
    return made


def test_a_checkout_from_a_remote_that_filters_has_all_files(tmp_path: Path, remote: Remote) -> None:
    root = small_stack(tmp_path / "root", remote, remote.git("rev-parse", "HEAD"))
    with Stores(stack.load(root), Place(tmp_path / "cache", "git")) as stores:
        worktree.checkout(stores, "up", tmp_path / "tree")
    assert (tmp_path / "tree/deep/er/b.py").read_bytes() == b"b = 2\n" * 50
    assert git.text(["status", "--porcelain"], cwd=tmp_path / "tree") == ""


def test_another_project_of_the_same_name_is_not_taken_from_the_cache(tmp_path: Path, remote: Remote) -> None:
    other = Remote(tmp_path / "other")
    theirs = other.commit({"other.py": b"other = 1\n"})
    other.tag("v1.0")
    mine = remote.git("rev-parse", "HEAD")
    for folder, source, commit in (("one", remote, mine), ("two", other, theirs), ("one", remote, mine)):
        root = tmp_path / folder
        if not root.exists():
            small_stack(root, source, commit)
        pin = stack.load(root).pins.get("up")
        assert obtain(pin, cache=tmp_path / "cache", source="git").commit == commit


FOREIGN = [
    *("../victim", "/etc/victim", "stacks/../../victim", "stacks//x", "link/victim", "stacks", "stacks/", "a\\..\\victim"),
    *(
        ".git/hooks/post-checkout",
        "stacks/.git/config",
        "stacks/.GIT/config",
        "stacks/git~1/config",
        "stacks/.g\u200cit/config",
    ),
    *(".stack/lock", ".venv/bin/python", "Makefile", ".gitattributes", "tests/conftest.py", "tools/stack/cli/__init__.py"),
]
"""Paths that no verb writes through a switch."""


def plant(root: Path, place: str, journal: object) -> None:
    """Write a journal as another person would, with a program that waits to be renamed."""
    file = root / ".stack" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    (root / ".stack/pending").mkdir(exist_ok=True)
    (root / ".stack/pending/0.new").write_bytes(b"planted")
    for name in ("history", "undone"):
        (root / ".stack" / name).mkdir(exist_ok=True)
    file.write_text(json.dumps(journal))


@pytest.mark.parametrize("path", FOREIGN)
@pytest.mark.parametrize("place", ["switch.json", "history/1/switch.json", "undone/1/switch.json"])
def test_a_journal_names_only_what_verbs_write(tmp_path: Path, remote: Remote, path: str, place: str) -> None:
    """Not even one with the right id, as after a defect of ours."""
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (root / "link").symlink_to(tmp_path)
    changes = {path: hashlib.sha256(b"planted").hexdigest()}
    plant(root, place, {"title": "x", "number": 1, "changes": changes, "checkout": checkout.identify(root)})
    before = files_of(root)
    with pytest.raises(StackError, match="is not what stack wrote"):
        {"switch.json": switch.recover, "history/1/switch.json": switch.undo, "undone/1/switch.json": switch.redo}[place](root)
    with pytest.raises(StackError, match="is not what stack wrote"):
        switch.adopt(root)
    assert files_of(root) == before
    assert victim.read_text() == "precious"


def apply_a(root: Path) -> None:
    switch.apply(root, {"stacks/a": b"a"}, title="a")


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.relative_to(root).parts[:2] not in ((".stack", "lock"), (".stack", ".gitignore"))
    }


@pytest.mark.parametrize("path", FOREIGN)
def test_a_switch_announces_no_other_paths(tmp_path: Path, remote: Remote, path: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    with pytest.raises(StackError, match="a switch writes"):
        switch.apply(root, {path: b"x"}, title="x")
    assert not (root / ".stack").exists()


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"title": 1, "number": 1, "changes": {}}', "[" * 100_000])
def test_a_journal_that_is_none_is_refused(tmp_path: Path, remote: Remote, text: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    (root / ".stack").mkdir()
    (root / ".stack/switch.json").write_text(text)
    with pytest.raises(StackError, match="is not what stack wrote"):
        stack.load(root)


JOURNAL = {"title": "x", "number": 1, "changes": {"pins.toml": hashlib.sha256(b"planted").hexdigest()}}


@pytest.mark.parametrize("checkouts", [{}, {"checkout": None}, {"checkout": ""}, {"checkout": "0" * 32}, {"checkout": "other"}])
@pytest.mark.parametrize("known", [False, True])
def test_a_journal_of_somebody_else_is_not_carried_out(
    tmp_path: Path, remote: Remote, checkouts: dict[str, object], known: bool
) -> None:
    """It names only the stack's files and is well formed: still nobody here has announced it."""
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    other = small_stack(tmp_path / "other", remote, "1" * 40)
    if known:
        checkout.identify(root)
    if checkouts.get("checkout") == "other":
        checkouts = {"checkout": checkout.identify(other)}
    before = (root / "pins.toml").read_bytes()
    plant(root, "switch.json", JOURNAL | checkouts)
    for verb in (stack.load, switch.recover, switch.undo, switch.redo, apply_a):
        with pytest.raises(StackError, match="was not written by you in this folder"):
            verb(root)
    assert (root / "pins.toml").read_bytes() == before
    assert not (root / "stacks/a").exists()


@pytest.mark.parametrize(
    ("kind", "verbs"), [("history", (switch.undo, switch.history)), ("undone", (switch.redo, switch.undone))]
)
def test_a_history_of_somebody_else_is_not_taken_back(
    tmp_path: Path, remote: Remote, kind: str, verbs: tuple[Callable[[Path], object], ...]
) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    now = (root / "pins.toml").read_bytes()
    plant(root, f"{kind}/1/switch.json", JOURNAL | {"changes": {"pins.toml": hashlib.sha256(now).hexdigest()}})
    (root / f".stack/{kind}/1/0.old").write_bytes(b"planted")
    for verb in verbs:
        with pytest.raises(StackError, match="was not written by you in this folder"):
            verb(root)
    assert (root / "pins.toml").read_bytes() == now


def test_a_checkout_that_was_moved_is_taken_over_on_request(tmp_path: Path, remote: Remote) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    before = (root / "pins.toml").read_bytes()
    switch.apply(root, {"pins.toml": b"new"}, title="mine")
    moved = root.rename(tmp_path / "moved")
    with pytest.raises(StackError, match="stack undo --adopt"):
        switch.undo(moved)
    assert (moved / "pins.toml").read_bytes() == b"new"
    switch.adopt(moved)
    assert switch.undo(moved).title == "mine"
    assert (moved / "pins.toml").read_bytes() == before
    again = moved.rename(tmp_path / "again")
    with pytest.raises(StackError, match="stack undo --adopt"):
        switch.redo(again)
    assert (again / "pins.toml").read_bytes() == before
    switch.adopt(again)
    assert switch.redo(again).title == "mine"
    assert (again / "pins.toml").read_bytes() == b"new"


def test_other_bytes_than_announced_are_refused(tmp_path: Path, remote: Remote) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    before = (root / "pins.toml").read_bytes()
    changes = {"pins.toml": hashlib.sha256(b"other").hexdigest()}
    plant(root, "switch.json", JOURNAL | {"changes": changes, "checkout": checkout.identify(root)})
    with pytest.raises(StackError, match="is not what was announced"):
        switch.recover(root)
    assert (root / "pins.toml").read_bytes() == before


OWN = [".stack", *(f".stack/{name}" for name in ("lock", "switch.json", "pending", "history", "undone", "waste", ".gitignore"))]


@pytest.mark.parametrize(
    "name", [*OWN, ".stack/gitignore.part", ".stack/switch.json.part", ".stack/history/1", ".stack/undone/1"]
)
@pytest.mark.parametrize("kind", ["folder", "file", "nothing"])
def test_nothing_is_opened_through_a_link_in_the_own_folder(tmp_path: Path, remote: Remote, name: str, kind: str) -> None:
    """The target of such a link is neither emptied, written, removed nor locked."""
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    target = tmp_path / "target"
    if kind == "folder":
        (target / "pending").mkdir(parents=True)
        (target / "pending/mine").write_text("mine")
        (target / "switch.json").write_text(json.dumps(JOURNAL))
    elif kind == "file":
        target.write_text("mine")
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target)
    before = files_of(target) if kind == "folder" else target.read_text() if kind == "file" else None
    for verb in (stack.load, switch.recover, switch.undo, switch.redo, switch.history, switch.undone, apply_a):
        with contextlib.suppress(StackError):
            verb(root)
    after = files_of(target) if target.is_dir() else target.read_text() if target.exists() else None
    assert after == before
    assert target.exists() == (kind != "nothing")


@pytest.mark.parametrize("name", [".stack/lock", ".stack/switch.json", ".stack/pending/0.new"])
def test_a_named_pipe_in_the_own_folder_is_refused(tmp_path: Path, remote: Remote, name: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    plant(root, "switch.json", JOURNAL | {"checkout": checkout.identify(root)})
    (root / name).unlink(missing_ok=True)
    os.mkfifo(root / name)
    with pytest.raises(StackError, match="is not a regular file"):
        switch.recover(root)


@pytest.mark.parametrize("path", ["stacks/new/x", "stacks/new"])
def test_a_switch_writes_through_no_link_of_the_stack(tmp_path: Path, remote: Remote, path: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    (tmp_path / "elsewhere").mkdir()
    (root / "stacks/new").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match="is a link"):
        switch.apply(root, {path: b"x"}, title="x")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (root / ".stack/switch.json").exists()


@pytest.mark.parametrize("name", ["pins.toml", "stacks"])
def test_a_stack_behind_a_link_is_refused(tmp_path: Path, remote: Remote, name: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    (root / name).rename(tmp_path / "elsewhere")
    (root / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match=f"{name} is a link"):
        stack.load(root)
