# SPDX-License-Identifier: Apache-2.0
"""`stack refresh --signoff`: what nobody has signed off gets the user's name, in the stack and in the working tree."""

from pathlib import Path

import pytest

from stack.carry import lint, worktree
from stack.carry.person import Person
from stack.carry.signoff import signed
from stack.model import switch

from .test_lint import FLAG, HOOK, policy
from .test_worktree import commit, names, user_git
from .world import World

ME = Person("Jörg Ä", "me@x")
SIGNED = "\nSigned-off-by: A Person <a@person>\n"


@pytest.fixture
def unsigned(world: World) -> World:
    """A stack that requires sign-offs, with three patches that have none; one message gets other trailers."""
    policy(world, 'signed-off-by = "required"')
    for place, instead in ((HOOK, ""), (FLAG, "\nFixes: 1\n"), ("stacks/two/beta/wide-load.patch", "")):
        world.edit(place, SIGNED, instead)
    return world


def test_signed_without_a_working_tree(unsigned: World) -> None:
    before = unsigned.files()
    with unsigned.stores() as stores:
        found = worktree.signed_off(stores, "gamma", ME)
        assert names(found.changed) == [HOOK.removeprefix("stacks/"), FLAG.removeprefix("stacks/")]
        assert names(found.kept) == ["two/gamma/fix-limit.patch"]
        switch.apply(unsigned.root, found.files, title="sign", expected=found.expected)
    with unsigned.stores() as stores:
        assert [finding.place for finding in lint.lint(stores)] == ["stacks/two/beta/wide-load.patch"]
    messages = {patch.ref.path: patch.message for patch in unsigned.load().order("gamma")}
    assert messages["one/gamma/hook-main.patch"].endswith("Why it is needed.\n\nSigned-off-by: Jörg Ä <me@x>\n")
    assert messages["one/gamma/tool-flag.patch"].endswith("\n\nFixes: 1\nSigned-off-by: Jörg Ä <me@x>\n")
    switch.undo(unsigned.root)
    assert unsigned.files() == before


@pytest.mark.parametrize("detached", [False, True])
def test_signed_in_a_working_tree(unsigned: World, tmp_path: Path, detached: bool) -> None:
    """The commits are signed off there, too: the next refresh takes no sign-off away."""
    tree = tmp_path / "tree"
    with unsigned.stores() as stores:
        worktree.checkout(stores, "gamma", tree)
    commit(tree, "gamma/new.py", b"new\n", "-m", "New", "--trailer", "Stack-Series: two")
    user_git(tree, "commit", "-q", "--amend", "-m", "New\n\nStack-Series: two")
    if detached:
        user_git(tree, "checkout", "-q", "--detach")
    for again in (False, True):
        with unsigned.stores() as stores:
            found = worktree.refresh(stores, "gamma", tree, signer=None if again else ME)
            worktree.write_back(stores.stack, tree, found, title="refresh")
        assert bool(found.changed) is not again
        assert user_git(tree, "status", "--porcelain") == ""
        assert user_git(tree, "log", "-1", "--format=%B") == "New\n\nStack-Series: two\nSigned-off-by: Jörg Ä <me@x>"
        with unsigned.stores() as stores:
            assert [finding.place for finding in lint.lint(stores)] == ["stacks/two/beta/wide-load.patch"]


def test_a_dry_run_moves_no_branch(unsigned: World, tmp_path: Path) -> None:
    with unsigned.stores() as stores:
        tip = worktree.checkout(stores, "gamma", tmp_path / "tree")
        found = worktree.refresh(stores, "gamma", tmp_path / "tree", signer=ME)
    assert found.signed is not None
    assert found.signed[0] == tip
    assert user_git(tmp_path / "tree", "rev-parse", "HEAD") == tip


def test_nothing_to_sign(world: World, tmp_path: Path) -> None:
    before = world.files()
    with world.stores() as stores:
        found = worktree.signed_off(stores, "gamma", ME)
        switch.apply(world.root, found.files, title="sign", expected=found.expected)
        tip = worktree.checkout(stores, "gamma", tmp_path / "tree")
        assert worktree.refresh(stores, "gamma", tmp_path / "tree", signer=ME).signed is None
    assert found.changed == ()
    assert world.files() == before
    assert user_git(tmp_path / "tree", "rev-parse", "HEAD") == tip


def test_a_sign_off_of_anybody_counts() -> None:
    theirs = "S\n\nSigned-off-by: A <a@b>\n"
    assert signed(theirs, ME) == theirs
    assert signed("S\n", ME) == "S\n\nSigned-off-by: Jörg Ä <me@x>\n"
    quoted = "S\n\nSigned-off-by: A <a@b>\nis what I miss.\n"
    assert signed(quoted, ME) == f"{quoted}\nSigned-off-by: Jörg Ä <me@x>\n"
