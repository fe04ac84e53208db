# SPDX-License-Identifier: Apache-2.0
"""Clones of all kinds that users have: partial ones, with replaced objects, grafts, submodules and further working trees."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import git

from .conftest import Project, tls, web
from .test_branch import clean


def test_a_partial_clone_without_contents(project: Project, tmp_path: Path) -> None:
    project.clone.commit(web({10: "x"}), "One")
    project.clone.commit(tls({10: "x"}), "Two")
    project.clone.git("config", "uploadpack.allowFilter", "true")
    part = tmp_path / "part"
    git.run(["clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{project.clone.path}", str(part)])
    git.run(["config", "remote.origin.uploadpack", f"touch {tmp_path}/ran; git-upload-pack"], cwd=part)
    with pytest.raises(StackError) as refused:
        project.bring(part, "mine")
    assert refused.value.problem == f"{part} is a partial clone, and lacks contents that are needed"
    assert refused.value.remedy == f"fetch them: git -C {part} fetch --refetch --no-filter"
    assert not (tmp_path / "ran").exists()
    git.run(["fetch", "--quiet", "--refetch", "--no-filter"], cwd=part)
    assert (tmp_path / "ran").exists()  # so git would have run it
    project.bring(part, "mine")
    assert project.series() == {"mine": ["web/one.patch", "web/two.patch"]}


def test_a_partial_clone_without_trees(project: Project, tmp_path: Path) -> None:
    project.clone.commit(web({10: "x"}), "One")
    project.clone.git("config", "uploadpack.allowFilter", "true")
    part = tmp_path / "part"
    git.run(["clone", "--quiet", "--filter=tree:0", "--no-checkout", f"file://{project.clone.path}", str(part)])
    with pytest.raises(StackError, match="is a partial clone, and lacks contents that are needed"):
        project.bring(part, "mine")


@pytest.mark.parametrize("how", ["replace", "graft file"])
def test_commits_are_read_as_they_are(project: Project, how: str) -> None:
    """Here the clone shows another content and other parents for a commit than it has."""
    first = project.clone.commit(web({10: "x"}), "One")
    second = project.clone.commit(web({10: "x", 20: "y"}), "Two")
    head = project.head()
    if how == "replace":
        project.clone.git("checkout", "--quiet", "--detach", first)
        other = project.clone.commit(web({10: "x", 20: "another"}), "Another two")
        project.clone.git("replace", second, other)
        project.clone.git("checkout", "--quiet", "--force", "mine")
    else:
        (project.clone.path / ".git/info").mkdir(exist_ok=True)
        (project.clone.path / ".git/info/grafts").write_text(f"{second}\n")
    work = project.bring(project.clone.path, "mine")
    assert work.notes == ("the clone replaces 1 object (git replace, grafts): commits are read as they are without that",)
    assert project.series() == {"mine": ["web/one.patch", "web/two.patch"]}
    assert project.tip()["src/web.c"] == head["src/web.c"]
    clean(project)


def test_a_further_working_tree(project: Project, tmp_path: Path) -> None:
    project.clone.commit(web({10: "x"}), "One")
    project.clone.git("worktree", "add", "--quiet", "-b", "other", str(tmp_path / "other"))
    git.run(["config", "user.name", "x"], cwd=tmp_path / "other")
    (tmp_path / "other/new").write_text("new\n")
    git.run(["add", "new"], cwd=tmp_path / "other")
    git.run(["-c", "user.email=x@y", "commit", "--quiet", "-m", "Two"], cwd=tmp_path / "other")
    project.bring(tmp_path / "other", "HEAD", series="both")
    assert project.series() == {"both": ["web/one.patch", "web/two.patch"]}


def test_a_commit_of_a_submodule(project: Project, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    git.run(["init", "--quiet", str(inner)])
    git.run(["-c", "user.name=x", "-c", "user.email=x@y", "commit", "--quiet", "--allow-empty", "-m", "In"], cwd=inner)
    allowed = ["-c", "protocol.file.allow=always"]
    git.run([*allowed, "submodule", "--quiet", "add", str(inner), "3rd/inner"], cwd=project.clone.path)
    project.clone.commit(web({10: "x"}), "Use inner")
    at = git.text(["rev-parse", "HEAD"], cwd=inner)
    work = project.bring(project.clone.path, "mine")
    assert [one.reason for one in work.left] == []
    assert project.series() == {"mine": ["web/use-inner.patch"]}
    assert f"+Subproject commit {at}".encode() in (project.root / "stacks/mine/web/use-inner.patch").read_bytes()
    clean(project)


def test_the_clone_of_a_submodule(project: Project, tmp_path: Path) -> None:
    """The folder of its objects lies in the clone around it."""
    project.clone.commit(web({10: "x"}), "One")
    around = tmp_path / "around"
    git.run(["init", "--quiet", str(around)])
    allowed = ["-c", "protocol.file.allow=always"]
    git.run([*allowed, "submodule", "--quiet", "add", str(project.clone.path), "web"], cwd=around)
    project.bring(around / "web", "mine")
    assert project.series() == {"mine": ["web/one.patch"]}
