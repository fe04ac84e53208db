# SPDX-License-Identifier: Apache-2.0
"""New files of a patch that stand in a folder of the stack: both ways, and never one at the cost of the other."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from stack.base.errors import StackError
from stack.carry import lint, patch_sources, worktree
from stack.cli import cli
from stack.model.stack import load

from .test_worktree import commit, listed, user_git
from .world import World

FOLDER = "kernels/src/kernel"
FIRST, SECOND = b"int first;\nint a;\nint b;\nint c;\nint d;\nint last;\n", b"no line end"


def stack(world: World, *arguments: str) -> str:
    done = CliRunner().invoke(cli, ["--root", str(world.root), "--cache", str(world.cache), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def sourced(world: World, tmp_path: Path) -> World:
    """A stack with a patch that adds two files, which have a folder, and a later patch that changes one of them."""
    tree = tmp_path / "tree"
    stack(world, "checkout", "gamma", str(tree), "--source", "git")
    (tree / "kernel").mkdir()
    (tree / "kernel/second.h").write_bytes(SECOND)
    user_git(tree, "add", "kernel/second.h")
    commit(tree, "kernel/first.h", FIRST, "-m", "Add a kernel", "--trailer", "Stack-Series: two")
    commit(tree, "kernel/first.h", FIRST.replace(b"last", b"the_end"), "-m", "Name the end", "--trailer", "Stack-Series: two")
    stack(world, "refresh", "gamma", str(tree), "--source", "git")
    file = world.root / "stacks/two/series.toml"
    line = 'file     = "gamma/add-a-kernel.patch"\n'
    assert line in file.read_text()
    file.write_text(file.read_text().replace(line, f'{line}from     = "{FOLDER}"\n'))
    assert "kernels/src/kernel is missing" in problems(world)[0]
    stack(world, "refresh", "gamma", "--source", "git")
    assert problems(world) == []
    return world


def problems(world: World) -> list[str]:
    with world.stores() as stores:
        return [f"{one.place} {one.problem}" for one in lint.lint(stores)]


def test_a_missing_folder_is_made_from_the_patch(sourced: World) -> None:
    assert (sourced.root / FOLDER / "kernel/first.h").read_bytes() == FIRST
    assert (sourced.root / FOLDER / "kernel/second.h").read_bytes() == SECOND


def test_the_folder_goes_into_the_patch_and_later_patches_go_along(sourced: World) -> None:
    before = {path: data for path, data in sourced.files().items() if path.endswith(".patch")}
    first = sourced.root / FOLDER / "kernel/first.h"
    first.write_bytes(b"int more;\n" + FIRST)
    (sourced.root / FOLDER / "kernel/second.h").unlink()
    (sourced.root / FOLDER / "kernel/third.h").write_bytes(b"third\n")
    assert [line.split()[0].removeprefix(f"{FOLDER}/kernel/") for line in problems(sourced)] == [
        "first.h",
        "second.h",
        "third.h",
    ]
    shown = stack(sourced, "refresh", "gamma", "--source", "git")
    assert "changed  two/gamma/add-a-kernel.patch" in shown and "changed  two/gamma/name-the-end.patch" in shown
    assert problems(sourced) == []
    now = load(sourced.root)
    (kernel,) = now.sources
    assert patch_sources.added(now.patches[kernel]) == {"kernel/first.h": b"int more;\n" + FIRST, "kernel/third.h": b"third\n"}
    after = {path: data for path, data in sourced.files().items() if path.endswith(".patch")}
    assert {path for path in before if before[path] != after[path]} == {
        "stacks/two/gamma/add-a-kernel.patch",
        "stacks/two/gamma/name-the-end.patch",
    }
    stack(sourced, "undo")
    assert {path: data for path, data in sourced.files().items() if path.endswith(".patch")} == before


def test_a_working_tree_goes_into_patch_and_folder(sourced: World, tmp_path: Path) -> None:
    tree = tmp_path / "again"
    stack(sourced, "checkout", "gamma", str(tree), "--source", "git")
    user_git(tree, "reset", "-q", "--hard", "HEAD~1")
    (tree / "kernel/first.h").write_bytes(b"other\n")
    user_git(tree, "rm", "-q", "kernel/second.h")
    user_git(tree, "commit", "-q", "-a", "--amend", "--no-edit")
    stack(sourced, "refresh", "gamma", str(tree), "--source", "git")
    assert problems(sourced) == []
    assert (sourced.root / FOLDER / "kernel/first.h").read_bytes() == b"other\n"
    assert not (sourced.root / FOLDER / "kernel/second.h").exists()
    user_git(tree, "reset", "-q", "--hard", "HEAD~1")
    stack(sourced, "refresh", "gamma", str(tree), "--source", "git")
    assert "two/gamma/add-a-kernel.patch" not in listed(sourced)
    assert not (sourced.root / FOLDER / "kernel/first.h").exists()


def test_neither_side_is_overwritten_where_they_differ(sourced: World, tmp_path: Path) -> None:
    tree = tmp_path / "again"
    stack(sourced, "checkout", "gamma", str(tree), "--source", "git")
    first = sourced.root / FOLDER / "kernel/first.h"
    first.write_bytes(b"mine\n")
    with sourced.stores("git") as stores:
        with pytest.raises(StackError, match=r"first\.h is not what two/gamma/add-a-kernel\.patch adds: run `stack refresh"):
            worktree.refresh(stores, "gamma", tree)
        with pytest.raises(StackError, match=r"first\.h is not what"):
            worktree.checkout(stores, "gamma", tmp_path / "third")
        with pytest.raises(StackError, match=r"name-the-end\.patch changes lines of kernel/first\.h that are no longer there"):
            worktree.refresh_from_sources(stores, "gamma")
    assert first.read_bytes() == b"mine\n"


def test_a_rebase_takes_the_folder_along(sourced: World) -> None:
    done = CliRunner().invoke(
        cli,
        [
            "--root",
            str(sourced.root),
            "--cache",
            str(sourced.cache),
            "rebase",
            "gamma",
            "--onto",
            "v2.1",
            "--with-required",
            "--source",
            "git",
        ],
    )
    assert done.exit_code == 0, done.output
    assert problems(sourced) == []


@pytest.mark.parametrize(
    "folder", [".git/hooks", "tools/stack", "../kernels/src/x", "kernels/src", "kernels/src/../../x", "sources/.git/x"]
)
def test_a_folder_of_something_else_is_refused(sourced: World, folder: str) -> None:
    file = sourced.root / "stacks/two/series.toml"
    file.write_text(file.read_text().replace(f'"{FOLDER}"', f'"{folder}"'))
    with pytest.raises(StackError, match="from"):
        load(sourced.root)


def test_a_rebase_does_not_overwrite_a_changed_folder(sourced: World) -> None:
    first = sourced.root / FOLDER / "kernel/first.h"
    first.write_bytes(b"int more;\n" + FIRST)
    before = sourced.files()
    asked = ["--root", str(sourced.root), "--cache", str(sourced.cache), "rebase", "gamma", "--onto", "v2.1", "--source", "git"]
    done = CliRunner().invoke(cli, [*asked, "--with-required"])
    assert isinstance(done.exception, StackError)
    assert "first.h is not what two/gamma/add-a-kernel.patch adds" in str(done.exception)
    assert sourced.files() == before
    assert first.read_bytes() == b"int more;\n" + FIRST


def test_the_folder_goes_with_its_patch(sourced: World) -> None:
    now = load(sourced.root)
    (ref,) = now.sources
    gone = patch_sources.mirrored(now, {ref: None})
    assert gone == {f"{FOLDER}/kernel/first.h": None, f"{FOLDER}/kernel/second.h": None}
    assert patch_sources.mirrored(now, {ref: now.patches[ref].raw}).keys() == gone.keys()


@pytest.mark.parametrize("place", ["kernels", "kernels/src", FOLDER, f"{FOLDER}/kernel", f"{FOLDER}/kernel/first.h"])
def test_links_are_not_followed(sourced: World, tmp_path: Path, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (sourced.root / place).rename(elsewhere)
    (sourced.root / place).symlink_to(elsewhere)
    with sourced.stores() as stores:
        with pytest.raises(StackError, match="is a link"):
            worktree.refresh_from_sources(stores, "gamma")
        with pytest.raises(StackError, match="is a link"):
            lint.lint(stores)


def test_a_named_pipe_is_refused(sourced: World) -> None:
    os.mkfifo(sourced.root / FOLDER / "kernel/pipe.h")
    with sourced.stores() as stores, pytest.raises(StackError, match="is not a regular file"):
        worktree.refresh_from_sources(stores, "gamma")
