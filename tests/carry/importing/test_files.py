# SPDX-License-Identifier: Apache-2.0
"""Patch files of every kind, and edited copies of the sources."""

import shutil
import subprocess
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.importing import closing, files, keeping
from stack.carry.importing.applying import apply_all
from stack.model import stack as stacks

from .conftest import FILES, Project, tls, web
from .test_branch import clean
from .test_hostile_sources import WHO
from .test_quilt import difference

OLD = web({})["src/web.c"]
NEW = web({10: "mine"})["src/web.c"]


def test_mails_and_a_mailbox(project: Project) -> None:
    project.clone.commit(web({10: "mine"}), "Mine\n\nBecause.\n\nSigned-off-by: A <a@b>")
    project.clone.commit({**tls({10: "mine"}), "data.bin": bytes(range(256))}, "Binary, too")
    project.clone.git("format-patch", "--quiet", "--output-directory", str(project.place / "out"), "release-1.1.0")
    box = project.place / "all.mbox"
    box.write_text(project.clone.git("format-patch", "--binary", "--stdout", "release-1.1.0") + "\n")
    project.bring(box)
    assert project.series() == {"all": ["web/mine.patch", "web/binary-too.patch"]}
    assert project.tip() == project.head()
    again = project.bring(project.place / "out", series="all")
    assert next(one.known for one in again.left) == "all/web/mine.patch"
    clean(project)


def test_mails_keep_their_names(project: Project) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    [name] = project.clone.git("format-patch", "--output-directory", str(project.place / "out"), "release-1.1.0").splitlines()
    Path(name).rename(project.place / "out/0007-CVE-2024-1_fix.patch")
    project.bring(project.place / "out")
    assert project.series() == {"out": ["web/CVE-2024-1_fix.patch"]}


@pytest.mark.parametrize("prefix", [("a/", "b/"), ("", ""), ("web-1.1.orig/", "web-1.1/"), ("../x/web.orig/", "../x/web/")])
@pytest.mark.parametrize("stamped", [True, False])
def test_levels_are_found_by_trying(project: Project, tmp_path: Path, prefix: tuple[str, str], stamped: bool) -> None:
    diff = difference("src/web.c", OLD, NEW, tmp_path, prefix=prefix)
    if not stamped:
        diff = b"\n".join(line.partition(b"\t")[0] for line in diff.split(b"\n"))
    file = project.place / "answer_faster.diff"
    file.write_bytes(diff)
    project.bring(file)
    assert project.series() == {"answer-faster": ["web/answer_faster.patch"]}
    assert project.tip() == {**FILES, "README": b"web\n", "src/web.c": NEW}
    [patch] = stacks.load(project.root).patches.values()
    assert patch.subject == "answer faster"


def test_a_git_diff_without_prefix(project: Project) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    file = project.place / "plain.diff"
    file.write_text(project.clone.git("diff", "--no-prefix", "release-1.1.0") + "\n")
    project.bring(file)
    assert project.tip() == project.head()


def test_a_new_file_alone_goes_where_its_folder_is(project: Project) -> None:
    for prefix, name in (("web.orig/", "one"), ("", "two")):
        file = project.place / f"{name}.diff"
        file.write_bytes(f"--- /dev/null\n+++ {prefix}src/{name}.c\n@@ -0,0 +1 @@\n+{name}\n".encode())
        project.bring(file)
    assert {"src/one.c", "src/two.c"} <= project.tip().keys()


def test_moved_lines_and_no_fuzz(project: Project, tmp_path: Path) -> None:
    file = project.place / "moved.diff"
    above = b"above\n" * 7
    file.write_bytes(difference("src/web.c", above + OLD, above + NEW, tmp_path))
    assert not project.bring(file).left
    assert project.tip()["src/web.c"] == NEW
    fuzzy = project.place / "fuzzy.diff"
    fuzzy.write_bytes(
        difference(
            "src/web.c", OLD.replace(b"web 58", b"other"), OLD.replace(b"web 58", b"other").replace(b"web 60", b"x"), tmp_path
        )
    )
    [left] = project.bring(fuzzy).failed
    assert left.reason.startswith("src/web.c:57: ")


def test_order_and_what_is_left(project: Project, tmp_path: Path) -> None:
    (project.place / "in/sub").mkdir(parents=True)
    one, two = project.place / "in/2.patch", project.place / "in/sub/1.patch"
    one.write_bytes(difference("src/web.c", OLD, NEW, tmp_path))
    two.write_bytes(difference("src/web.c", NEW, web({10: "again"})["src/web.c"], tmp_path))
    bad = project.place / "in/sub/bad.patch"
    bad.write_text("no diff\n")
    work = project.bring(project.place / "in", rules=["folder"])
    assert project.series() == {"in": ["web/2.patch"], "sub": ["web/1.patch"]}
    assert stacks.load(project.root).get("sub").needs == ("in",)
    folder = keeping.place(project.place / "left", "in", work.failed)
    keeping.keep(folder, work.failed)
    assert (folder / "bad.patch").read_text() == "no diff\n"
    assert "bad.patch: it has no diff" in (folder / "reasons.txt").read_text()
    assert keeping.place(folder, "in", work.failed) == folder  # it would leave the same
    (folder / "bad.patch").write_text("mended\n")
    with pytest.raises(StackError, match="not an empty folder"):
        keeping.place(folder, "in", work.failed)


def test_a_context_diff_is_called_one(project: Project, tmp_path: Path) -> None:
    for name, text in (("old", "a\n"), ("new", "b\n")):
        (tmp_path / name).write_text(text)
    made = subprocess.run(["diff", "-c", "old", "new"], cwd=tmp_path, check=False, capture_output=True)
    file = project.place / "context.patch"
    file.write_bytes(made.stdout)
    [left] = project.bring(file).failed
    assert "context diff" in left.reason


def test_a_hunk_cut_short_and_an_empty_folder(project: Project) -> None:
    file = project.place / "cut.patch"
    file.write_bytes(b"--- a/src/web.c\n+++ b/src/web.c\n@@ -1,3 +1,3 @@\n web 1\n-web 2\n")
    [left] = project.bring(file).failed
    assert "cut short" in left.reason
    (project.place / "none").mkdir()
    with pytest.raises(StackError, match="has no files"):
        project.bring(project.place / "none")
    with pytest.raises(StackError, match="does not exist"):
        project.bring(project.place / "nowhere.patch")


def test_an_edited_copy(project: Project) -> None:
    copy = project.place / "vendor/web"
    shutil.copytree(project.clone.path, copy, ignore=shutil.ignore_patterns(".git"))
    (copy / "src/web.c").write_bytes(NEW)
    (copy / "src/new.c").write_text("new\n")
    (copy / "src/tls.c").unlink()
    (copy / "Makefile").chmod(0o755)
    shutil.rmtree(copy / "doc")
    (copy / "pipe").symlink_to("README")
    work = project.bring(tree=copy)
    assert sorted(project.series()["web"]) == [f"web/local-changes-in-{name}.patch" for name in ("makefile", "pipe", "src")]
    assert any("lacks 1 top-level" in note and "doc" in note for note in work.notes)
    assert project.tip() == {
        "README": b"web\n",
        "Makefile": FILES["Makefile"],
        "doc/old.txt": b"old\n",
        "pipe": b"README",
        "src/web.c": NEW,
        "src/new.c": b"new\n",
    }
    clean(project)
    with pytest.raises(StackError, match="has nothing of the pinned sources"):
        project.bring(tree=project.place / "vendor")


def test_a_new_series_reads_as_a_person_would_write_it(project: Project) -> None:
    project.clone.commit(tls({10: "x"}), "Let TLS check names")
    project.clone.commit(tls({10: "y"}), "Log what TLS checks")
    project.bring(project.clone.path, "mine", series="tls-names")
    assert stacks.load(project.root).get("tls-names").title == "TLS names"
    text = (project.root / "stacks/tls-names/series.toml").read_text()
    assert '\nstate = "draft"\n\n[[patch]]\n' in text
    assert text.count("\n\n[[patch]]\n") == 2


def test_a_file_that_the_archive_lacks(project: Project) -> None:
    patch = project.place / "docs.patch"
    patch.write_text("--- a/t/basic.t\n+++ b/t/basic.t\n@@ -1 +1 @@\n-one\n+two\n")
    [left] = project.bring(patch).left
    assert left.reason == "t/basic.t: is not there"
    with project.stores() as stores:
        read = files.read_all([patch], WHO)
        [archived] = apply_all(stores.objects("web"), stores.base("web"), (), read, "archive").left
    assert archived.reason == (
        't/basic.t: the source archive lacks it; the git remote may have it: source = "git" in pins.toml, or --source git'
    )


def test_closing_triage(project: Project) -> None:
    project.clone.git("checkout", "--quiet", "-b", "early", "release-1.0.0")
    project.pin("release-1.0.0")
    with project.stores() as stores:
        stores.obtain("web")
    project.clone.commit({"src/web.c": FILES["src/web.c"].replace(b"web 100\n", b"release\n")}, "Landed")
    project.clone.commit(tls({10: "x"}), "Ours")
    work = project.bring(project.clone.path, "early")
    with project.stores() as stores:
        found = closing.triage(stores, work)
    assert (found.release, found.landed, found.needs_person, found.why) == ("release-1.1.0", 1, 0, "")
    shutil.rmtree(project.remote.path)
    with project.stores() as stores:
        assert closing.triage(stores, work).why
