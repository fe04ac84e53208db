# SPDX-License-Identifier: Apache-2.0
"""A cache that cannot be written is read, and left as it is; what is computed goes to a temporary one."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from stack.store import borrowed, git

from .factories import Remote


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A cache with a repository, an archive, a tree, and a kept result."""
    home = tmp_path / "cache"
    remote = Remote(tmp_path / "remote")
    remote.commit({"a.txt": b"1\n"})
    (home / "upstreams").mkdir(parents=True)
    git.run(["clone", "--bare", "--quiet", str(remote.path), str(home / "upstreams/up.git")])
    for file in (
        "archives/up/up-1.0.tar.gz",
        "trees/abc/a.txt",
        "trees/abc.lock",
        "trees/moving-up-0/a.txt",
        "results/proofs/1.json",
    ):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(file)
    return home


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))}


def test_one_that_can_be_written_is_used(home: Path) -> None:
    said: list[str] = []
    with borrowed.usable(home, said.append) as place:
        assert place == home
    assert said == []


def test_one_that_does_not_exist_is_made_by_who_uses_it(tmp_path: Path) -> None:
    with borrowed.usable(tmp_path / "a/b", pytest.fail) as place:
        assert place == tmp_path / "a/b"
    assert not (tmp_path / "a").exists()


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system has so much space."""
    monkeypatch.setattr(borrowed, "_LEAST", 1 << 62)


@pytest.mark.usefixtures("full")
def test_a_full_one_is_read_and_not_written(home: Path) -> None:
    before = everything(home)
    said: list[str] = []
    with borrowed.usable(home, said.append) as place:
        assert (place / "archives/up/up-1.0.tar.gz").read_text() == "archives/up/up-1.0.tar.gz"
        assert (place / "trees/abc/a.txt").read_text() == "trees/abc/a.txt"
        assert not (place / "trees/moving-up-0").exists()
        (place / "archives/up/up-1.1.tar.gz").write_text("new")
        (place / "trees/abc.lock").write_text("mine")
        store = place / "upstreams/up.git"
        head = git.run(["rev-parse", "HEAD:a.txt"], cwd=store).stdout.decode().strip()
        assert git.run(["cat-file", "blob", head], cwd=store).stdout == b"1\n"
        made = git.run(["hash-object", "-w", "--stdin"], cwd=store, stdin=b"2\n").stdout.decode().strip()
        git.run(["update-ref", "refs/stack/new", "HEAD"], cwd=store)
        assert git.run(["cat-file", "blob", made], cwd=store).stdout == b"2\n"
    assert everything(home) == before
    assert not place.exists()
    (line,) = said
    assert str(home) in line
    assert "full" in line


def test_a_read_only_one_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plenty = SimpleNamespace(f_flag=os.ST_RDONLY, f_bavail=1 << 40, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: plenty)
    assert "read-only" in (borrowed.unwritable(home) or "")
    plenty.f_flag = 0
    assert borrowed.unwritable(home) is None
