# SPDX-License-Identifier: Apache-2.0
"""What a review found: journals that others have written, trees that stand elsewhere, caches of other projects."""

import hashlib
import json
from pathlib import Path

import pytest

from stack.carry import worktree
from stack.carry.bases import Place, Stores
from stack.model import stack, switch
from stack.model.errors import StackError
from stack.store import git
from stack.store.sources import obtain

from ..store.making import Remote


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


@pytest.mark.parametrize(
    "changes",
    [
        {"../victim": None},
        {"/etc/victim": None},
        {"stacks/../../victim": None},
        {".git/hooks/post-checkout": None},
        {"link/victim": None},
        {"stacks/stack.toml": "no hash"},
        ["stacks/stack.toml"],
    ],
)
@pytest.mark.parametrize("place", ["switch.json", "history/1/switch.json"])
def test_a_journal_that_reaches_out_of_the_stack_is_refused(
    tmp_path: Path, remote: Remote, changes: object, place: str
) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (root / "link").symlink_to(tmp_path)
    file = root / ".stack" / place
    file.parent.mkdir(parents=True)
    (root / ".stack/pending").mkdir()
    file.write_text(json.dumps({"title": "x", "number": 1, "changes": changes}))
    with pytest.raises(StackError, match="is not what stack wrote"):
        stack.load(root) if place == "switch.json" else switch.undo(root)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"title": 1, "number": 1, "changes": {}}'])
def test_a_journal_that_is_none_is_refused(tmp_path: Path, remote: Remote, text: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    (root / ".stack").mkdir()
    (root / ".stack/switch.json").write_text(text)
    with pytest.raises(StackError, match="is not what stack wrote"):
        stack.load(root)


def test_other_bytes_than_announced_are_refused(tmp_path: Path, remote: Remote) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    before = (root / "pins.toml").read_bytes()
    (root / ".stack/pending").mkdir(parents=True)
    (root / ".stack/pending/0.new").write_bytes(b"planted")
    announced = {"title": "x", "number": 1, "changes": {"pins.toml": hashlib.sha256(b"other").hexdigest()}}
    (root / ".stack/switch.json").write_text(json.dumps(announced))
    with pytest.raises(StackError, match="is not what was announced"):
        stack.load(root)
    assert (root / "pins.toml").read_bytes() == before


@pytest.mark.parametrize("name", ["pins.toml", "stacks"])
def test_a_stack_behind_a_link_is_refused(tmp_path: Path, remote: Remote, name: str) -> None:
    root = small_stack(tmp_path / "root", remote, "1" * 40)
    (root / name).rename(tmp_path / "elsewhere")
    (root / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError, match=f"{name} is a link"):
        stack.load(root)
