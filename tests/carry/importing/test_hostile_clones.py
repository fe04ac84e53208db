# SPDX-License-Identifier: Apache-2.0
"""Clones that somebody else has prepared: none of their settings run a program, none makes a command wait or fill the memory."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.importing import range_size
from stack.images.bisecting import ends
from stack.store import git, plain_view

from .conftest import Project, web

PROGRAMS = (
    "core.fsmonitor",
    "core.sshCommand",
    "core.gitProxy",
    "core.askPass",
    "core.pager",
    "core.editor",
    "core.alternateRefsCommand",
    "credential.helper",
    "diff.external",
    "diff.x.textconv",
    "diff.x.command",
    "filter.x.clean",
    "filter.x.smudge",
    "filter.x.process",
    "gpg.program",
    "merge.x.driver",
    "remote.up.uploadpack",
    "remote.up.vcs",
    "uploadpack.packObjectsHook",
    "tar.tar.command",
    "trailer.x.command",
)


def armed(place: Path, name: str = "ran") -> tuple[str, Path]:
    """A program that leaves a trace, and the trace."""
    program, trace = place / f"{name}.sh", place / name
    program.write_text(f"#!/bin/sh\ntouch {trace}\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program), trace


def arm(folder: Path, place: Path) -> Path:
    """Let all settings of a clone that name a program name one; attributes of its files call them. Returns the trace."""
    program, trace = armed(place)
    for key in PROGRAMS:
        git.run(["config", key, program], cwd=folder)
    settings = {
        f"url.ext::{program} .insteadOf": "/",
        "protocol.allow": "always",
        "protocol.ext.allow": "always",
        "core.hooksPath": str(place),
        "core.attributesFile": str(place / "attributes"),
        "core.worktree": str(place),
        "remote.up.promisor": "true",
        "extensions.worktreeConfig": "true",
        "core.repositoryFormatVersion": "1",
        "include.path": str(place / "more"),
    }
    for key, value in settings.items():
        git.run(["config", key, value], cwd=folder)
    (place / "attributes").write_text("* filter=x diff=x merge=x\n")
    (folder / ".git/info").mkdir(exist_ok=True)
    (folder / ".git/info/attributes").write_text("* filter=x diff=x merge=x export-subst\n")
    (place / "more").write_text(f"[core]\n\tfsmonitor = {program}\n")
    (folder / ".git/config.worktree").write_text(f"[core]\n\tfsmonitor = {program}\n")
    for hook in ("reference-transaction", "post-checkout", "post-index-change", "pre-auto-gc"):
        os.link(program, place / hook)
    return trace


def contents(folder: Path) -> list[tuple[str, bytes | str]]:
    files = sorted(one for one in folder.rglob("*") if one.is_file() or one.is_symlink())
    return [(str(one), str(one.readlink()) if one.is_symlink() else one.read_bytes()) for one in files]


def test_no_setting_of_an_imported_clone_runs_a_program(project: Project, tmp_path: Path) -> None:
    project.clone.commit({**web({10: "mine"}), ".gitattributes": b"* filter=x diff=x merge=x\n"}, "Mine")
    trace = arm(project.clone.path, tmp_path)
    before = contents(project.clone.path / ".git")
    project.bring(project.clone.path, "mine")
    assert project.series() == {"mine": ["web/mine.patch"]}
    assert not trace.exists()
    assert contents(project.clone.path / ".git") == before


def test_no_setting_of_a_clone_that_lends_objects_runs_a_program(project: Project, tmp_path: Path) -> None:
    trace = arm(project.clone.path, tmp_path)
    with project.stores() as stores:
        assert stores.obtain("web", reference=project.clone.path).commit == project.first
    assert not trace.exists()


@pytest.mark.parametrize("below", ["", "inner/deep"])
def test_no_filter_of_a_checkout_runs_when_its_revisions_are_bisected(project: Project, tmp_path: Path, below: str) -> None:
    place = tmp_path / "checkout"
    root = place / below
    root.mkdir(parents=True)
    for path in ("pins.toml", "stacks/stack.toml"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes((project.root / path).read_bytes())
    (place / ".gitattributes").write_text("* filter=x\n")
    git.run(["init", "--quiet"], cwd=place)
    git.run(["add", "."], cwd=place)
    git.run(["-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-m", "One"], cwd=place)
    trace = arm(place, tmp_path)
    git.run(["config", "--unset", "core.worktree"], cwd=place)
    found = ends.load("HEAD", root, tmp_path / "found")
    assert found.pins.names() == ("web",)
    assert not trace.exists()


# --- what never ends ------------------------------------------------------------------------------------------------------


def pipe(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)


def included(place: Path) -> None:
    git.run(["config", "include.path", "pipe"], cwd=place.parent)
    pipe(place / "pipe")


def indexed(place: Path) -> None:
    git.run(["repack", "-adq"], cwd=place.parent)
    [index] = (place / "objects/pack").glob("*.idx")
    pipe(index)


def without_branches(place: Path) -> None:
    """Nothing to list: what is in the clone is read later."""
    (place / "HEAD").write_text(git.text(["rev-parse", "HEAD"], cwd=place.parent) + "\n")
    shutil.rmtree(place / "refs")
    (place / "refs").mkdir()
    (place / "packed-refs").unlink(missing_ok=True)
    pipe(place / "objects/info/alternates")


ENDLESS: dict[str, Callable[[Path], None]] = {
    "an included file": included,
    "HEAD": lambda place: pipe(place / "HEAD"),
    "packed references": lambda place: pipe(place / "packed-refs"),
    "a branch": lambda place: pipe(place / "refs/heads/mine"),
    "the list of alternates": lambda place: pipe(place / "objects/info/alternates"),
    "the list of alternates without a branch": without_branches,
    "an index of a pack": indexed,
}


@pytest.mark.parametrize("harm", ENDLESS.values(), ids=ENDLESS)
def test_a_named_pipe_in_a_clone_is_an_error_after_a_while(
    project: Project, harm: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    harm(project.clone.path / ".git")
    monkeypatch.setattr(plain_view, "SECONDS", 0.5)
    with pytest.raises(StackError, match=r"gave no answer within 0\.5 s: look for named pipes"):
        project.bring(project.clone.path, "mine")
    assert project.series() == {}


@pytest.mark.parametrize("lent", ["the clone itself", "nothing there", "a file", "/dev/zero", "a pipe"])
def test_alternates_that_lead_nowhere(project: Project, lent: str, tmp_path: Path) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    own = project.clone.path / ".git/objects"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    named = {"the clone itself": own, "a file": tmp_path / "file", "/dev/zero": "/dev/zero", "a pipe": tmp_path / "pipe"}
    (own / "info/alternates").write_text(f"{named.get(lent, tmp_path / 'none')}\n")
    project.bring(project.clone.path, "mine")
    assert project.series() == {"mine": ["web/mine.patch"]}


def test_a_clone_whose_git_folder_is_a_link_is_only_read(project: Project, tmp_path: Path) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    before = contents(project.clone.path / ".git")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.git").symlink_to(project.clone.path / ".git")
    project.bring(tmp_path / "linked", "mine")
    assert project.series() == {"mine": ["web/mine.patch"]}
    assert contents(project.clone.path / ".git") == before


# --- what is too large ----------------------------------------------------------------------------------------------------


def test_a_large_file_in_a_small_pack_is_refused_before_it_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.clone.commit({"zeros": bytes(4 * 2**20)}, "Zeros")
    project.clone.commit({"zeros": b"few\n"}, "None")
    monkeypatch.setattr(range_size, "LARGEST", 2**20)
    with pytest.raises(StackError) as refused:
        project.bring(project.clone.path, "mine")
    assert refused.value.problem == "the branch has a blob zeros of 4 MiB, more than 1 MiB"
    assert project.series() == {}


def test_a_branch_with_too_many_commits_is_refused(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        project.clone.commit(web({number + 1: "x"}), f"Line {number}")
    monkeypatch.setattr(range_size, "MOST", 2)
    with pytest.raises(StackError, match=r"the branch has 3 commits beyond [0-9a-f]{12}, more than 2: name a range"):
        project.bring(project.clone.path, "mine")


def test_a_list_of_shallow_commits_that_is_too_large(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.clone.commit(web({10: "mine"}), "Mine")
    (project.clone.path / ".git/shallow").write_text("# long\n" * 9)
    monkeypatch.setattr(plain_view, "_LARGEST", 16)
    with pytest.raises(StackError):
        project.bring(project.clone.path, "mine")


def test_a_folder_with_a_line_break_in_its_name(project: Project, tmp_path: Path) -> None:
    place = tmp_path / "two\nlines"
    project.clone.path.rename(place)
    with pytest.raises(StackError, match="has a line break in its path"), plain_view.view(place):
        pass
