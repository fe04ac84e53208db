# SPDX-License-Identifier: Apache-2.0
"""Patches made to hurt: each ends in a clear error or in the right result, and nothing is written outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import triage
from stack.carry.outcome import Outcome
from stack.carry.triage import Range, Row
from stack.store import git

from ..sweeps import sweep

ZERO = "0" * 40


class Ground:
    """A repository with the tags `base` and `onto`, and what becomes of a patch in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "repo"
        self.cache = folder / "cache"
        git.run(["init", "--quiet", "--initial-branch=main", str(self.folder)])
        for key, value in (("user.name", "Up"), ("user.email", "up@localhost")):
            git.run(["config", key, value], cwd=self.folder)
        (self.folder / "a").write_text("".join(f"{number}\n" for number in range(1, 200_001)))
        (self.folder / "sub").mkdir()
        (self.folder / "sub/b").write_text("b\n")
        self.commit("base")
        (self.folder / "sub/b").write_text("b\nmore\n")
        self.commit("onto")

    def commit(self, name: str) -> None:
        git.run(["add", "--all"], cwd=self.folder)
        git.run(["commit", "--quiet", "-m", name], cwd=self.folder)
        git.run(["tag", name], cwd=self.folder)

    def row(self, diff: bytes) -> Row:
        file = self.folder.parent / "one.patch"
        file.write_bytes(diff)
        return triage.triage(self.folder, Range("base", "onto"), [file], cache=self.cache, independent=True).rows[0]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(tmp_path_factory.mktemp("ground"))
    before = sorted(made.folder.rglob("*"))
    yield made
    assert sorted(made.folder.rglob("*")) == before
    assert {path.name for path in made.folder.parent.iterdir()} == {"repo", "cache", "one.patch"}


def new_file(name: str, *, mode: str = "100644", lines: str = "+x\n", count: int = 1, quoted: bool = False) -> bytes:
    old, new = (f'"a/{name}"', f'"b/{name}"') if quoted else (f"a/{name}", f"b/{name}")
    return (
        f"diff --git {old} {new}\nnew file mode {mode}\nindex {ZERO}..{'1' * 40}\n--- /dev/null\n+++ {new}\n@@ -0,0 +1,{count} @@\n{lines}"
    ).encode()


@pytest.mark.parametrize("name", ["../out", "/etc/x", "sub/../../x", ".git/hooks/x", "sub/.GIT/x", "./x", "sub//x"])
def test_a_name_outside_of_the_tree_is_refused(ground: Ground, name: str) -> None:
    with pytest.raises(StackError, match=r"outside of the tree|cannot be read|is not expected"):
        ground.row(new_file(name))


@pytest.mark.parametrize(
    ("name", "shown"), [(r"new\nline", "new\nline"), (r"tab\there", "tab\there"), (r"qu\"ote", 'qu"ote'), (r"\303\274", "ü")]
)
def test_odd_names_are_carried(ground: Ground, name: str, shown: str) -> None:
    row = ground.row(new_file(name, quoted=True))
    assert row.carried.outcome is Outcome.CLEAN
    assert row.exported is not None
    assert shown.isprintable() or b"\\" in row.exported


@pytest.mark.parametrize(
    ("diff", "outcome"),
    [
        (new_file("link", mode="120000", lines="+../../etc/passwd\n\\ No newline at end of file\n"), Outcome.CLEAN),
        (b"diff --git a/sub/b b/sub/b\nold mode 100644\nnew mode 100755\n", Outcome.CLEAN),
        (b"diff --git a/sub/b b/sub/b\nold mode 100644\nnew mode 120000\n", Outcome.CONFLICT),
        (b"diff --git a/gone b/gone\nold mode 100644\nnew mode 100755\n", Outcome.CONFLICT),
        (new_file("sub"), Outcome.CONFLICT),
        (new_file("a/under"), Outcome.CONFLICT),
        (new_file("mod", mode="160000", lines=f"+Subproject commit {'2' * 40}\n"), Outcome.CLEAN),
        (
            b"diff --git a/sub/b b/sub/b\nindex 1111111..2222222 100644\nBinary files a/sub/b and b/sub/b differ\n",
            Outcome.CONFLICT,
        ),
        (b"diff --git a/sub/b b/sub/b\nindex 1..2\nGIT binary patch\nliteral 99999999999\nzcmZ\n\n", Outcome.CONFLICT),
        (
            b"diff --git a/sub/b b/sub/b\n--- a/sub/b\n+++ b/sub/b\n@@ -99999999999999999999,1 +1,1 @@\n-b\n+c\n",
            Outcome.CONFLICT,
        ),
    ],
    ids=[
        "link",
        "mode",
        "link mode",
        "mode of nothing",
        "file on folder",
        "folder on file",
        "submodule",
        "binary",
        "torn",
        "far",
    ],
)
def test_odd_changes_end_somewhere(ground: Ground, diff: bytes, outcome: Outcome) -> None:
    assert ground.row(diff).carried.outcome is outcome


@pytest.mark.parametrize(
    "diff",
    [
        b"diff --git a/sub/b b/sub/b\n--- a/sub/b\n+++ b/sub/b\n@@ -1,9 +1,9 @@\n-b\n+c\n",
        b"diff --git a/sub/b b/sub/b\n--- a/sub/b\n+++ b/sub/b\n@@ -1 +1 @@\nnot a diff line\n",
        b"diff --git \n",
    ],
    ids=["cut short", "no diff line", "no name"],
)
def test_what_is_no_diff_is_refused(ground: Ground, diff: bytes) -> None:
    with pytest.raises(StackError, match=r"cannot be read|holds no diff"):
        ground.row(diff)


@sweep("megabytes", 15, 100)
@pytest.mark.slow
def test_a_large_hunk(ground: Ground, megabytes: int) -> None:
    count = megabytes * 20_000
    row = ground.row(new_file("large", lines=("+" + "y" * 49 + "\n") * count, count=count))
    assert row.carried.outcome is Outcome.CLEAN


@sweep("part", 0.2, 1)
@pytest.mark.slow
@pytest.mark.parametrize("fits", [True, False])
def test_very_many_hunks(ground: Ground, fits: bool, part: float) -> None:
    """12,500 at the end of a file of 200,000 lines, or 250,000, most of them behind its end; a fifth of them in the quick run.

    git's time for a hunk grows with the file: 50,000 that fit take 15 s of processor time.
    """
    first, last = (200_000 - int(50_000 * part), 200_000) if fits else (150_001, 150_000 + int(1_000_000 * part))
    hunks = "".join(f"@@ -{n},3 +{n},3 @@\n {n}\n-{n + 1}\n+z{n}\n {n + 2}\n" for n in range(first | 1, last - 2, 4))
    row = ground.row(f"diff --git a/a b/a\n--- a/a\n+++ b/a\n{hunks}".encode())
    assert row.carried.outcome is (Outcome.CLEAN if fits else Outcome.CONFLICT)
