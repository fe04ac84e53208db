# SPDX-License-Identifier: Apache-2.0
"""Lines carried over time, from a real git history of a stack."""

import os
import sys
from pathlib import Path

import pytest

from stack.reporting import history
from stack.reporting.report import Point
from stack.store import git

from .factories import told

DAY = 86400
BEGIN = 1_700_000_000


class Repository:
    """A repository with a stack in it, `below` its top; each commit is a day after the one before."""

    def __init__(self, folder: Path, below: str) -> None:
        self.top, self.root = folder, folder / below
        self.day = 0
        git.run(["init", "--quiet", "--initial-branch=main", str(folder)])

    def git(self, *args: str) -> None:
        when = f"{BEGIN + self.day * DAY} +0000"
        names = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        git.run(args, cwd=self.top, env=names | {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when})

    def commit(self, files: dict[str, bytes | None]) -> None:
        for name, content in files.items():
            path = self.root / name
            if content is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "change")
        self.day += 1


def patch(*lines: str) -> bytes:
    """Return a patch file that adds lines. Some look like the head of a diff."""
    added = "".join(f"+{line}\n" for line in lines)
    head = f"diff --git a/f b/f\nindex {'1' * 40}..{'2' * 40} 100644\n--- a/f\n+++ b/f\n@@ -1 +1,{len(lines) + 1} @@\n first\n"
    mail = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nDate: Fri, 7 Feb 2025 12:00:00 +0000\nSubject: [PATCH] Do\n\n---\n"
    return f"{mail}{head}{added}-- \n2.40\n".encode()


@pytest.fixture(params=[".", "forks/mine"])
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Repository:
    return Repository(tmp_path / "repository", request.param)


def at(day: int, patches: int, lines: int) -> Point:
    return Point(BEGIN + day * DAY, patches, lines)


def test_patches_come_change_and_go(repository: Repository) -> None:
    repository.commit({"README": b"no stack yet"})
    repository.commit(
        {"stacks/s/up/a.patch": patch("1", "++ 2"), "stacks/stack.toml": b"", "stacks/resolutions/up/x.patch": patch("r")}
    )
    repository.commit({"README": b"beside the stack"})
    repository.commit({"stacks/s/up/b.patch": patch("1"), "stacks/s/up/with blank ä.patch": patch("1", "2", "3")})
    repository.commit({"stacks/s/up/a.patch": patch("1", "2", "3", "4")})
    repository.commit({"stacks/s/up/b.patch": None})
    assert history.read(repository.root).points == (at(1, 1, 2), at(3, 3, 6), at(4, 3, 8), at(5, 2, 7))


def test_a_branch_that_was_merged_counts_when_it_was_merged(repository: Repository) -> None:
    repository.commit({"stacks/s/up/a.patch": patch("1")})
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit({"stacks/s/up/b.patch": patch("1")})
    repository.commit({"stacks/s/up/c.patch": patch("1")})
    repository.git("checkout", "--quiet", "main")
    repository.commit({"README": b"meanwhile"})
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "side")
    assert history.read(repository.root).points == (at(0, 1, 1), at(4, 3, 3))


def test_lanes_are_not_counted(repository: Repository) -> None:
    repository.commit({"stacks/s/up/a.patch": patch("1"), "stacks/lanes/old/s/up/a.patch": patch("1", "2")})
    repository.commit({"stacks/lanes/new/s/up/a.patch": patch("1", "2", "3"), "stacks/s/up/a.patch": patch("1", "2")})
    assert history.read(repository.root).points == (at(0, 1, 1), at(1, 1, 2))


def test_clocks_that_went_back(repository: Repository) -> None:
    repository.day = 9
    repository.commit({"stacks/s/up/a.patch": patch("1")})
    repository.day = 2
    repository.commit({"stacks/s/up/b.patch": patch("1")})
    assert history.read(repository.root).points == (at(9, 1, 1), at(9, 2, 2))


def test_what_is_no_patch_counts_no_lines(repository: Repository) -> None:
    repository.commit({"stacks/s/up/a.patch": b"not a patch\n", "stacks/s/up/b.patch": b"\0" * 100 + patch("1")[:-60]})
    assert history.read(repository.root).points == (at(0, 2, 0),)


def test_a_history_of_many_commits_begins_later(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        repository.commit({f"stacks/s/up/{number}.patch": patch("1")})
    monkeypatch.setattr(history, "_MOST_COMMITS", 2)
    assert history.read(repository.root).points == (at(2, 3, 3), at(3, 4, 4))


def test_large_patches_are_not_read(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.commit({"stacks/s/up/a.patch": patch("1"), "stacks/s/up/b.patch": patch(*["a line"] * 200)})
    monkeypatch.setattr(history, "_LARGEST", 1000)
    assert history.read(repository.root).points == (at(0, 2, 1),)


def test_too_many_bytes_of_patches_leave_the_history_out(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        repository.commit({"stacks/s/up/a.patch": patch(*["a line"] * (100 + number))})
    monkeypatch.setattr(history, "_LARGEST", 2000)
    assert len(history.read(repository.root).points) == 3
    monkeypatch.setattr(history, "_MOST_BYTES", 3000)
    assert history.read(repository.root) == history.History(left_out="its patch files have more than 0 MiB over all commits")


def bomb(repository: Repository, *, whole: bool) -> None:
    """Commit folders of ten folders each, nine times: a billion patch files in few bytes."""
    repository.commit({} if whole else {"stacks/s/up/a.patch": patch("1")})
    blob = git.run(["hash-object", "-w", "--stdin"], cwd=repository.top, stdin=patch("1")).stdout.decode().strip()
    entries = "".join(f"100644 blob {blob}\t{number}.patch\n" for number in range(10))
    for _ in range(9):
        tree = git.run(["mktree"], cwd=repository.top, stdin=entries.encode()).stdout.decode().strip()
        entries = "".join(f"040000 tree {tree}\t{number}\n" for number in range(10))
    git.run(["read-tree", "--empty"], cwd=repository.top)
    tree = git.run(["mktree"], cwd=repository.top, stdin=f"040000 tree {tree}\tstacks\n".encode()).stdout.decode().strip()
    parents = [] if whole else ["-p", "HEAD"]
    names = {f"GIT_{who}_{what}": "a" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    made = git.run(["commit-tree", tree, *parents, "-m", "b"], cwd=repository.top, env=names).stdout.decode().strip()
    repository.git("update-ref", "HEAD", made)


@pytest.mark.parametrize("whole", [True, False])
def test_a_billion_patch_files_in_small_trees_leave_the_history_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    repository = Repository(tmp_path / "repository", ".")
    bomb(repository, whole=whole)
    monkeypatch.setattr(git, "_MEMORY", 2**26)
    left_out = history.read(repository.root).left_out
    assert left_out.startswith("git ls-tree printed more than 33554432 bytes" if whole else "git diff-tree ")
    if not whole and sys.platform == "linux":
        assert "out of memory" in left_out.lower()


def test_a_git_that_never_answers_leaves_the_history_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path / "repository", ".")
    repository.commit({"stacks/s/up/a.patch": patch("1")})
    (repository.root / ".git/HEAD").unlink()
    os.mkfifo(repository.root / ".git/HEAD")
    monkeypatch.setattr(history, "_SECONDS", 0.3)
    report = history.included(told(), repository.root)
    note = "Lines carried over time are left out: git rev-list gave no answer within 0.3 s."
    assert report.notes == (*told().notes, note)


def test_no_repository_and_no_commit(tmp_path: Path) -> None:
    assert history.read(tmp_path) == history.History()
    assert history.read(Repository(tmp_path / "new", ".").root) == history.History()


def test_the_repositorys_configuration_runs_nothing(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repository", ".")
    repository.commit({"stacks/s/up/a.patch": patch("1"), ".gitattributes": b"*.patch diff=own filter=own\n"})
    repository.commit({"stacks/s/up/a.patch": patch("1", "2")})
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    keys = [
        "core.fsmonitor",
        "diff.external",
        "diff.own.textconv",
        "diff.own.command",
        "filter.own.smudge",
        "core.pager",
        "gpg.program",
    ]
    for key in [*keys, "remote.origin.uploadpack", "core.sshCommand"]:
        repository.git("config", key, str(program))
    repository.git("config", "remote.origin.url", f"ext::{program}")
    repository.git("config", "remote.origin.promisor", "true")
    repository.git("config", "extensions.partialClone", "origin")
    repository.git("config", "log.showSignature", "true")
    blob = git.text(["rev-parse", "HEAD~:stacks/s/up/a.patch"], cwd=repository.root)
    (repository.root / f".git/objects/{blob[:2]}/{blob[2:]}").unlink()
    assert history.read(repository.root).points == (at(0, 1, 0), at(1, 1, 2))
    assert not (tmp_path / "ran").exists()
