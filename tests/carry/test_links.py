# SPDX-License-Identifier: Apache-2.0
"""Links that patches bring: those that leave the tree are found by lint, and no tree with one is written out."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import lint, worktree
from stack.store import git

from .world import World

LINK = "stacks/one/gamma/link.patch"
LEAVING = ["/etc/passwd", "../outside", "..", "gamma/../../outside", ".git/hooks", "../gamma/.GIT/config"]
STAYING = ["gamma/main.py", "./gamma", "nothing-yet"]


def add_link(world: World, place: Path, path: str, target: str) -> None:
    """Add a patch as git writes it that brings a link."""
    git.run(["init", "--quiet", str(place)])
    identity = ("-c", "user.name=A Person", "-c", "user.email=a@person")
    git.run([*identity, "commit", "--quiet", "--allow-empty", "--message", "base"], cwd=place)
    (place / path).parent.mkdir(parents=True, exist_ok=True)
    (place / path).symlink_to(target)
    git.run(["add", "--all"], cwd=place)
    git.run([*identity, "commit", "--quiet", "--signoff", "--message", "Link"], cwd=place)
    form = ("format-patch", "-1", "--stdout", "--full-index", "--no-stat", "--no-signature", "--zero-commit")
    (world.root / LINK).write_bytes(git.run([*form], cwd=place).stdout)
    series = world.root / "stacks/one/series.toml"
    series.write_text(series.read_text() + '\n[[patch]]\nupstream = "gamma"\nfile = "gamma/link.patch"\n')


@pytest.mark.parametrize("target", LEAVING)
def test_a_link_that_leaves_the_tree(world: World, tmp_path: Path, target: str) -> None:
    add_link(world, tmp_path / "made", "link", target)
    with world.stores() as stores:
        assert [one.place for one in lint.lint(stores)] == [LINK]
        with pytest.raises(StackError, match="link is a link that points"):
            worktree.checkout(stores, "gamma", tmp_path / "tree")
        with pytest.raises(StackError, match="link is a link that points"):
            stores.tip("gamma")
    assert not (tmp_path / "tree").exists()


@pytest.mark.parametrize("target", STAYING)
def test_a_link_within_the_tree(world: World, tmp_path: Path, target: str) -> None:
    add_link(world, tmp_path / "made", "link", target)
    with world.stores() as stores:
        assert [*lint.lint(stores)] == []
        worktree.checkout(stores, "gamma", tmp_path / "tree")
    assert (tmp_path / "tree/link").readlink() == Path(target.removeprefix("./"))


def test_a_link_in_a_folder_may_climb_within_the_tree(world: World, tmp_path: Path) -> None:
    add_link(world, tmp_path / "made", "deep/er/link", "../../gamma/main.py")
    with world.stores() as stores:
        assert [*lint.lint(stores)] == []
