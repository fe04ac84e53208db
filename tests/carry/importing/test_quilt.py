# SPDX-License-Identifier: Apache-2.0
"""Quilt series, and Debian's headers in them."""

import itertools
import subprocess
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.carry.importing import dep3
from stack.model import stack as stacks
from stack.model.patch import Author
from stack.model.series import State

from .conftest import Project, web
from .test_branch import clean

WHO = Author("Nobody", "no@body", "7 +0000")


def difference(
    path: str, old: bytes, new: bytes, place: Path, *, prefix: tuple[str, str] = ("a/", "b/"), context: int = 3
) -> bytes:
    """Return the output of `diff -u` for one file, with timestamps."""
    for name, data in (("old", old), ("new", new)):
        (place / name).write_bytes(data)
    stamp = "\t2024-05-06 07:08:09.000000000 +0000"
    labels = [f"--label={side}{path}{stamp}" for side in prefix]
    return subprocess.run(
        ["diff", f"-U{context}", *labels, place / "old", place / "new"], capture_output=True, check=False
    ).stdout


HEADED = """\
Description: Answer faster
 It was slow, since it waited.
 .
 Second paragraph.
Author: Jane Doe <jane@doe.example>
Origin: upstream, https://example.org/commit/abc
Bug-Debian: https://bugs.debian.org/1
Forwarded: https://example.org/pull/12
Applied-Upstream: 1.2.0
Last-Update: 2024-02-03
---
This is not part of it.
"""


def test_a_debian_folder(project: Project, tmp_path: Path) -> None:
    folder = project.place / "pkg/debian/patches"
    (folder / "more").mkdir(parents=True)
    one = web({10: "fast"})["src/web.c"]
    old = web({})["src/web.c"]
    (folder / "01_answer-faster.patch").write_bytes(HEADED.encode() + difference("src/web.c", old, one, tmp_path))
    two = web({10: "fast", 60: "more"})["src/web.c"]
    (folder / "more/p0.diff").write_bytes(difference("src/web.c", one, two, tmp_path, prefix=("", "")))
    (folder / "unused.patch").write_bytes(b"garbage\n")
    (folder / "new file.patch").write_bytes(
        b"--- /dev/null\n+++ b/src/new.c\n@@ -0,0 +1,2 @@\n+one\n+two\n--- a/doc/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n"
    )
    back = difference("src/web.c", two, one, tmp_path, prefix=("x/y/", "x/y/"))
    (folder / "back.patch").write_bytes(back)
    (folder / "wrong.patch").write_bytes(difference("src/web.c", two, web({60: "others"})["src/web.c"], tmp_path))
    (folder / "series").write_text(
        "# A comment.\n01_answer-faster.patch # and one more\n\nmore/p0.diff -p0\n'new file.patch'\nback.patch -p2\nwrong.patch\n"
    )
    work = project.bring(project.place / "pkg")
    [twice] = work.failed
    assert twice.reason == "src/web.c:57: the lines that it changes are not there"
    files = project.tip()
    assert files["src/web.c"] == one
    assert files["src/new.c"] == b"one\ntwo\n"
    assert "doc/old.txt" not in files
    assert project.series() == {"pkg": ["web/answer-faster.patch", "web/p0.patch", "web/new-file.patch", "web/back.patch"]}
    stack = stacks.load(project.root)
    patch = next(iter(stack.patches.values()))
    assert (patch.author.name, patch.author.mail, patch.author.date) == ("Jane Doe", "jane@doe.example", "1706918400 +0000")
    assert patch.message == dedent(
        """\
        Answer faster

        It was slow, since it waited.

        Second paragraph.

        Origin: upstream, https://example.org/commit/abc
        Bug-Debian: https://bugs.debian.org/1
        Forwarded: https://example.org/pull/12
        Applied-Upstream: 1.2.0
        Last-Update: 2024-02-03
        """
    )
    series = stack.get("pkg")
    assert [pull.address for pull in series.pulls] == ["https://example.org/pull/12"]
    assert series.drop_when == "the pin has what upstream applied: answer-faster.patch: 1.2.0"
    clean(project)


@pytest.mark.parametrize(
    ("header", "subject", "name"),
    [
        ("From: A <a@b>\nSubject: [PATCH 2/3] Do it\n\nLong.\n", "Do it", "A"),
        ("Author: A B\nDescription: Do it\n", "Do it", "A B"),
        (
            "commit 0123456789abcdef\nAuthor: A <a@b>\nDate:   Thu Jun 2 20:41:21 2022 +0000\n\n    Do it\n\n    Long.\n",
            "Do it",
            "A",
        ),
        ("Do it\n", "Do it", None),
        ("## DP: Do it\n", "Do it", None),
        ("From: =?utf-8?q?J=C3=BCrgen?= <a@b>\nSubject: Do it\n over two lines\n", "Do it", "Jürgen"),
    ],
)
def test_headers(header: str, subject: str, name: str | None) -> None:
    found = dep3.read(header.encode(), fallback=WHO)
    assert found.message is not None
    assert found.message.partition("\n")[0] == subject
    assert (found.author and found.author.name) == name


def test_not_needed_upstream(project: Project, tmp_path: Path) -> None:
    folder = project.place / "patches"
    folder.mkdir()
    change = difference("src/web.c", web({})["src/web.c"], web({10: "x"})["src/web.c"], tmp_path)
    (folder / "local.patch").write_bytes(b"Description: Local\nForwarded: not-needed\n\n" + change)
    (folder / "series").write_text("local.patch\n")
    project.bring(folder, series="local")
    series = stacks.load(project.root).get("local")
    assert (series.state, bool(series.reason)) == (State.INAPPROPRIATE, True)


def test_series_may_not_leave_its_folder(project: Project) -> None:
    folder = project.place / "q"
    folder.mkdir()
    (project.place / "secret").write_text("x")
    for name in ("../secret", str(project.place / "secret")):
        (folder / "series").write_text(f"{name}\n")
        with pytest.raises(StackError, match="outside of its folder"):
            project.bring(folder)
    (folder / "link.patch").symlink_to(project.place / "secret")
    (folder / "series").write_text("link.patch\n")
    with pytest.raises(StackError, match="outside of its folder"):
        project.bring(folder)


@pytest.mark.parametrize("path", ["b/../../out", "b/.git/config", "b/a/../../out"])
def test_diff_may_not_leave_the_tree(project: Project, path: str) -> None:
    folder = project.place / "q"
    folder.mkdir()
    (folder / "evil.patch").write_bytes(f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n".encode())
    (folder / "series").write_text("evil.patch\n")
    work = project.bring(folder)
    assert len(work.failed) == 1
    assert project.series() == {}


def test_link_out_of_the_tree_is_left_out(project: Project) -> None:
    folder = project.place / "q"
    folder.mkdir()
    (folder / "evil.patch").write_bytes(
        b"diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    )
    (folder / "series").write_text("evil.patch\n")
    [left] = project.bring(folder).failed
    assert left.reason == "out is a link that points at an absolute path"


def test_the_same_diff_twice_is_named(project: Project, tmp_path: Path) -> None:
    """Taken back in between, it applies again; but a stack cannot hold it twice."""
    folder = project.place / "q"
    folder.mkdir()
    one, two = web({})["src/web.c"], web({10: "x"})["src/web.c"]
    (folder / "on.patch").write_bytes(difference("src/web.c", one, two, tmp_path))
    (folder / "off.patch").write_bytes(difference("src/web.c", two, one, tmp_path))
    (folder / "series").write_text("on.patch\non.patch -R\non.patch\n")
    work = project.bring(folder)
    assert [one.reason for one in work.failed] == ["it is the same as on.patch, and a stack holds it only once"]
    assert project.tip()["src/web.c"] == one


LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"}\n", b"\n", b"long line\n"]), max_size=14)
CONTENT = st.tuples(LINES, st.sampled_from([b"", b"end without newline"])).map(lambda parts: b"".join(parts[0]) + parts[1])
TREE = st.dictionaries(st.sampled_from(["src/a.c", "src/b.c", "top", "src/deep/c.c"]), CONTENT.filter(bool), min_size=1)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TREE, min_size=2, max_size=5), st.sampled_from([1, 3, 5]), st.sampled_from([(0, ("", "")), (1, ("a/", "b/"))]))
def test_random_series_give_the_same_tree_as_patch(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, bytes]], context: int, form: tuple[int, tuple[str, str]]
) -> None:
    """Trees of random files, one after the other: the diffs between them, as quilt holds them, lead to the last one."""
    place = tmp_path_factory.mktemp("quilt")
    project = Project(place)
    project.remote.git("rm", "--quiet", "-r", ".")
    project.remote.commit({"keep": b"keep\n", **trees[0]}, "Random")
    project.remote.tag("release-2.0.0")
    project.pin("release-2.0.0")
    folder = place / "patches"
    folder.mkdir()
    level, prefix = form
    names = []
    for number, (old, new) in enumerate(itertools.pairwise(trees)):
        diff = b"".join(
            _change(path, old.get(path), new.get(path), place, prefix, context) for path in sorted(old.keys() | new.keys())
        )
        if diff:
            names.append(f"p{number}.patch -p{level}")
            (folder / f"p{number}.patch").write_bytes(diff)
    (folder / "series").write_text("\n".join(names))
    work = project.bring(folder, series="mine")
    assert all("holds it only once" in one.reason for one in work.left)
    if not work.left:
        assert project.tip() == {"keep": b"keep\n", **trees[-1]}


def _change(path: str, old: bytes | None, new: bytes | None, place: Path, prefix: tuple[str, str], context: int) -> bytes:
    if old == new:
        return b""
    diff = difference(path, old or b"", new or b"", place, prefix=prefix, context=context)
    lines = diff.split(b"\n")
    if old is None:
        lines[0] = b"--- /dev/null"
    if new is None:
        lines[1] = b"+++ /dev/null"
    return b"\n".join(lines)
