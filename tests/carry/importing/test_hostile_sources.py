# SPDX-License-Identifier: Apache-2.0
"""Hostile patch files, series and clones: they take no time, and end in a sentence for the user."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.importing import dep3, keeping, plain, quilt
from stack.carry.importing.candidate import Candidate, LeftOut, storable
from stack.carry.importing.clone import Clone
from stack.model import mail
from stack.model.patch import Author

from .conftest import Project

WHO = Author("Nobody", "no@body", "7 +0000")
MANY = 50_000
HUNK = b"\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"


def test_long_lines_take_no_quadratic_time() -> None:
    began = time.monotonic()
    assert len(mail.split(b"From a" + b"1:11:11 " * MANY + b"\n")) == 1
    dep3.read(b"From: " + b"a" * MANY + b"\nSubject: x\n", fallback=WHO)
    dep3.read(b"Subject: [" + b"PATCH" * MANY + b"\n", fallback=WHO)
    for name in (b" " * 19_000, b" " * MANY, b" (" * MANY):
        try:
            plain.sections(b"--- a/x" + name + b"x" + HUNK)
        except plain.Unreadable:
            assert len(name) >= MANY
    assert time.monotonic() - began < 20


def test_a_mailbox_splits_at_dated_lines_only() -> None:
    first = b"From 0123456789abcdef Mon Sep 17 00:00:00 2001\nFrom: a <a@b>\n\nx\n"
    assert mail.split(first + first) == (first, first)
    assert len(mail.split(first + b"From here at 10:00:00\nnote: no year\n")) == 1


@pytest.mark.parametrize("date", ["Mon, 1 Jan 2020 00:00:00 +99999999999999999", f"Mon, {10**30} Jan 2020 00:00:00"])
def test_a_date_out_of_all_bounds_counts_as_none(date: str) -> None:
    found = dep3.read(f"Subject: x\nFrom: a <a@b>\nDate: {date}\n".encode(), fallback=WHO)
    assert found.author is not None
    assert found.author.date == WHO.date


@pytest.mark.parametrize("charset", ["undefined", "a\0b", "nonsense"])
def test_a_charset_that_cannot_be_used_counts_as_none(charset: str) -> None:
    assert mail.decoded(b"abc", charset) == "abc"


@pytest.mark.parametrize("line", [b"a\0b", b"loop", b"x" * 300, b"x" * 100_000, b"a\n" * 20_001])
def test_a_series_with_a_line_that_is_no_path_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "series").write_bytes(line + b"\n")
    with pytest.raises(StackError, match=r"series (names|has a line)"):
        quilt.read(tmp_path / "series", WHO)


def test_a_name_in_another_encoding_is_read_and_kept(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.patch")).write_bytes(b"--- a/x" + HUNK)
    (tmp_path / "series").write_bytes(b"caf\xe9.patch\ngon\xe9.patch\n")
    found, missing = quilt.read(tmp_path / "series", WHO)
    assert isinstance(found, Candidate)
    found.message.encode()
    assert isinstance(missing, LeftOut)
    left = LeftOut(missing.candidate, missing.candidate.name)
    keeping.keep(tmp_path / "kept", (left, left, left))
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == [
        ".gitignore",
        "gon-2.patch",
        "gon-3.patch",
        "gon.patch",
        "reasons.txt",
    ]


def test_a_message_with_both_trailers_and_a_diff_is_indented() -> None:
    message = "subject\n\ndiff --git a/x b/x\n\nStack-Series: one\nStack-Patch: up/x.patch\n"
    assert "\n diff --git" in storable(message)


def test_a_clone_with_a_branch_in_another_encoding_is_read(tmp_path: Path) -> None:
    def git(*args: str | bytes) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *args], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q", "-b", "mine")
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("update-ref", b"refs/heads/caf\xe9", "HEAD")
    with Clone(tmp_path) as clone:
        assert clone.find("mine") is not None
        assert clone.find("mine@{yesterday}") is None


@pytest.mark.parametrize("ids", ["", "index 0000000..1111111\n"])
def test_a_file_below_a_file_of_the_same_patch_is_left_out(project: Project, ids: str) -> None:
    folder = project.place / "patches"
    folder.mkdir()
    link = f"diff --git a/l b/l\nnew file mode 120000\n{ids}--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+web\n\\ No newline at end of file\n"
    inside = f"diff --git a/l/in b/l/in\nnew file mode 100644\n{ids}--- /dev/null\n+++ b/l/in\n@@ -0,0 +1 @@\n+text\n"
    (folder / "both.patch").write_text(link + inside)
    work = project.bring(folder)
    (left,) = work.left
    assert "l/in" in left.reason
    assert project.series() == {}
