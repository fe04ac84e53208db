# SPDX-License-Identifier: Apache-2.0
"""A branch of a clone becomes series: one patch a commit, in an order that gives the same tree."""

import os
import stat
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import worktree
from stack.carry.lint import lint
from stack.model import stack as stacks
from stack.model import switch

from ..world import numbered
from .conftest import Project, tls, web

SIGNED = "Signed-off-by: Up Stream <up@stream>"


def clean(project: Project) -> None:
    with project.stores() as stores:
        assert [finding for finding in lint(stores) if "Signed-off-by" not in finding.problem] == []


def test_one_patch_a_commit_with_author_date_and_message(project: Project) -> None:
    project.clone.git("config", "user.name", "Jürgen Ö")
    project.clone.commit(web({10: "mine"}), f"[http] Answer faster\n\nIt is slow.\n\n{SIGNED}")
    project.clone.commit(tls({10: "mine"}), "Check names")
    work = project.bring(project.clone.path, "mine")
    assert project.series() == {"mine": ["web/answer-faster.patch", "web/check-names.patch"]}
    assert project.tip() == project.head()
    patch = next(iter(stacks.load(project.root).patches.values()))
    assert patch.message == f"[http] Answer faster\n\nIt is slow.\n\n{SIGNED}\n"
    assert (patch.author.name, patch.author.mail, patch.author.date.partition(" ")[2]) == ("Jürgen Ö", "up@stream", "+0000")
    assert not work.left
    clean(project)
    switch.undo(project.root)
    assert project.series() == {}
    assert not (project.root / "stacks/mine/series.toml").exists()


@pytest.mark.parametrize(
    "message",
    [
        "Two  blanks (#7)",
        "A subject\nover two lines\n\nBody",
        "[tag] In brackets\n\n\n\nToo many blank lines",
        "A subject that is so long that git has to fold it in the header of a mail,  with two blanks at the fold " * 2,
        "Trailing blanks   \n\nbody   \n",
    ],
)
def test_what_is_imported_is_byte_stable(project: Project, message: str) -> None:
    project.clone.commit({"src/web.c": numbered("web", {3: "ours", 100: "release"}, count=120)}, message)
    project.bring(project.clone.path, "mine")
    with project.stores() as stores:
        assert [finding.problem for finding in lint(stores)] == []


def test_import_again_names_what_is_there(project: Project) -> None:
    project.clone.commit(web({10: "a"}), "First")
    project.clone.commit(web({10: "b"}), "Second")
    project.bring(project.clone.path, "mine")
    project.clone.commit(web({10: "b", 50: "c"}), "Third")
    again = project.bring(project.clone.path, "mine")
    assert [one.known for one in again.left] == ["mine/web/first.patch", "mine/web/second.patch"]
    assert project.series() == {"mine": ["web/first.patch", "web/second.patch", "web/third.patch"]}
    assert project.tip() == project.head()
    clean(project)


def test_series_by_rules_are_reordered_and_need_each_other(project: Project) -> None:
    project.clone.commit(web({10: "one"}), "http: one")
    project.clone.commit(tls({10: "one"}), "Check names of QUIC")
    project.clone.commit(web({60: "two"}), "http: two")
    project.clone.commit({**web({10: "one more", 60: "two"}), "src/quic.c": b"quic\n"}, "Add quic")
    work = project.bring(project.clone.path, "mine", series="http", rules=["tls=*quic*"])
    assert project.series() == {
        "http": ["web/http-one.patch", "web/http-two.patch"],
        "tls": ["web/check-names-of-quic.patch", "web/add-quic.patch"],
    }
    assert stacks.load(project.root).get("tls").needs == ("http",)
    assert stacks.load(project.root).get("http").needs == ()
    assert project.tip() == project.head()
    assert not work.notes
    clean(project)


def test_patches_that_do_not_commute_stay_in_one_series(project: Project) -> None:
    project.clone.commit(web({10: "a"}), "[a] one")
    project.clone.commit(web({10: "b"}), "[b] two")
    project.clone.commit(web({10: "c"}), "[a] three")
    project.clone.commit(tls({10: "c"}), "[b] four")
    work = project.bring(project.clone.path, "mine", rules=["prefix"])
    assert project.series() == {"a": ["web/one.patch"], "b": ["web/two.patch", "web/three.patch", "web/four.patch"]}
    assert work.notes == ("'[a] three' does not commute with '[b] two': both are in b",)
    assert stacks.load(project.root).get("b").needs == ("a",)
    assert project.tip() == project.head()


def test_into_an_existing_series_before_a_later_one(project: Project) -> None:
    project.clone.commit(web({50: "first"}), "[a] first")
    project.clone.commit(tls({50: "second"}), "[b] second")
    project.bring(project.clone.path, "mine", rules=["prefix"])
    toml = project.root / "stacks/a/series.toml"
    toml.write_text("# Keep me.\n" + toml.read_text())
    project.clone.commit({"src/tls.c": b"above\n" + tls({50: "second"})["src/tls.c"]}, "[a] third")
    project.bring(project.clone.path, "mine", rules=["prefix"])
    assert project.series() == {"a": ["web/first.patch", "web/third.patch"], "b": ["web/second.patch"]}
    assert toml.read_text().startswith("# Keep me.\n")
    assert b"@@ -48,7 +48,7 @@" in (project.root / "stacks/b/web/second.patch").read_bytes()
    assert project.tip() == project.head()
    clean(project)


def test_an_older_branch_is_carried_to_the_pin(project: Project) -> None:
    project.clone.git("checkout", "--quiet", "-b", "old", "release-1.0.0")
    project.clone.commit({"src/web.c": numbered("web", {10: "mine"}, count=120)}, "Mine")
    project.clone.commit({"src/web.c": numbered("web", {10: "mine", 100: "release"}, count=120)}, "Landed since")
    project.clone.commit({"src/web.c": numbered("web", {10: "mine", 100: "other"}, count=120)}, "Then conflict")
    work = project.bring(project.clone.path, "old")
    assert project.series() == {"old": ["web/mine.patch", "web/then-conflict.patch"]}
    [landed] = work.left
    assert landed.landed
    assert "release-1.1.0 has it" in landed.reason
    assert project.first[:12] in landed.reason
    assert project.tip()["src/web.c"] == numbered("web", {10: "mine", 100: "other"}, count=120)


def test_a_conflict_with_the_pin_is_left_out(project: Project) -> None:
    project.clone.git("checkout", "--quiet", "-b", "old", "release-1.0.0")
    project.clone.commit({"src/web.c": numbered("web", {100: "mine"}, count=120)}, "Conflict")
    project.clone.commit({"src/web.c": numbered("web", {20: "mine", 100: "mine"}, count=120)}, "Fine")
    work = project.bring(project.clone.path, "old")
    assert [one.candidate.subject for one in work.failed] == ["Conflict"]
    assert "src/web.c" in work.failed[0].reason
    assert project.series() == {"old": ["web/fine.patch"]}


def test_merges_are_flattened_if_that_gives_the_same_files(project: Project) -> None:
    project.clone.commit(web({10: "a"}), "Left")
    project.clone.git("checkout", "--quiet", "-b", "side", "release-1.1.0")
    project.clone.commit(tls({10: "b"}), "Right")
    project.clone.git("checkout", "--quiet", "mine")
    project.clone.git("merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    work = project.bring(project.clone.path, "mine")
    assert sorted(project.series()["mine"]) == ["web/left.patch", "web/right.patch"]
    assert "1 merge commit was flattened: the files are the same" in work.notes
    assert project.tip() == project.head()


def test_a_merge_with_changes_of_its_own_is_named(project: Project) -> None:
    project.clone.commit(web({10: "a"}), "Left")
    project.clone.git("checkout", "--quiet", "-b", "side", "release-1.1.0")
    project.clone.commit(tls({10: "b"}), "Right")
    project.clone.git("checkout", "--quiet", "mine")
    project.clone.git("merge", "--quiet", "--no-ff", "--no-commit", "side")
    project.clone.commit({"Makefile": b"evil\n"}, "Evil merge")
    with pytest.raises(StackError, match=r"merges with changes of their own: [0-9a-f]{12} Evil merge"):
        project.bring(project.clone.path, "mine")
    assert project.series() == {}


def test_range_where_the_pin_is_not_in_the_clone(project: Project) -> None:
    other = project.clone
    other.git("checkout", "--quiet", "--orphan", "own")
    base = other.commit({}, "Vendored")
    other.commit(web({10: "mine"}), "Mine")
    with pytest.raises(StackError, match=r"no commit in common with release-1.1.0.*BASE\.\.TIP"):
        project.bring(other.path, "own")
    other.git("tag", "--delete", "release-1.1.0", "release-1.0.0")
    project.bring(other.path, f"{base}..own")
    assert project.series() == {"own": ["web/mine.patch"]}
    assert project.tip() == project.head()


def test_nothing_of_the_clone_is_run(project: Project) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    ran = project.place / "ran"
    script = project.place / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "uploadpack.packObjectsHook",
        "gpg.program",
        "diff.external",
    ):
        project.clone.git("config", key, str(script))
    project.clone.git("config", "core.hooksPath", str(project.place))
    project.clone.git("config", "include.path", "/dev/null")
    before = sorted(os.walk(project.clone.path / ".git"))
    project.bring(project.clone.path, "mine")
    assert project.series() == {"mine": ["web/mine.patch"]}
    assert not ran.exists()
    assert sorted(os.walk(project.clone.path / ".git")) == before


def test_editor_assigns_and_leaves_out(project: Project) -> None:
    for number in (10, 30, 50):
        project.clone.commit(web({each: "x" for each in (10, 30, 50) if each <= number}), f"Line {number}")
    project.clone.commit(tls({10: "x"}), "Last")

    def edit(text: str) -> str:
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert [line.split()[0] for line in lines] == ["mine"] * 4
        return "\n".join(["# A comment", lines[0], lines[1].replace("mine", "other"), lines[3].replace("mine", "other")])

    project.bring(project.clone.path, "mine", edit=edit)
    assert project.series() == {"mine": ["web/line-10.patch"], "other": ["web/line-30.patch", "web/last.patch"]}
    with pytest.raises(StackError, match="not saved"):
        project.bring(project.clone.path, "mine", edit=lambda _: None)


def test_a_branch_of_a_checkout_comes_back_as_the_same_stack(project: Project, tmp_path: Path) -> None:
    project.clone.commit(web({10: "one"}), "[a] one")
    project.clone.commit(tls({10: "two"}), "[b] two\n\nWhy.\n\nSigned-off-by: A <a@b>")
    project.bring(project.clone.path, "mine", rules=["prefix"])
    before = {ref: patch.raw for ref, patch in stacks.load(project.root).patches.items()}
    with project.stores() as stores:
        worktree.checkout(stores, "web", tmp_path / "tree")
    switch.undo(project.root)
    project.bring(tmp_path / "tree", "stack")
    assert {ref: patch.raw for ref, patch in stacks.load(project.root).patches.items()} == before


def test_no_such_branch_names_those_that_are_there(project: Project) -> None:
    project.clone.commit(web({10: "a"}), "A")
    with pytest.raises(StackError, match="no branch, tag or commit 'nope': its branches: mine"):
        project.bring(project.clone.path, "nope")
    with pytest.raises(StackError, match="no commit beyond"):
        project.bring(project.clone.path, "release-1.1.0")
