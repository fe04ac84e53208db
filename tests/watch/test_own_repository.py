# SPDX-License-Identifier: Apache-2.0
"""Our branch at the forge: a commit proves by itself that nobody changed it; and where the repository is found."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import git
from stack.watch import own_repository
from stack.watch.own_repository import Copy

from .world import BRANCH, Maintainer

PERSON = {f"GIT_{who}_{what}": "p" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def copy(me: Maintainer) -> Iterator[Copy]:
    with own_repository.copied(own_repository.locate(me.work, "origin"), "main") as made:
        yield made


def committed(copy: Copy) -> str:
    (copy.root / "new.txt").write_text("new\n")
    (copy.root / ".stack").mkdir()
    (copy.root / ".stack/journal").write_text("ours\n")
    commit = own_repository.commit_all(copy, "pins: carry\n\nWhy.\n")
    own_repository.restore(copy)
    return commit


def test_the_same_files_give_the_same_commit(copy: Copy) -> None:
    first = committed(copy)
    assert git.text(["status", "--porcelain", "--ignored"], cwd=copy.place) == ""
    assert committed(copy) == first
    assert git.text(["diff", "--name-only", copy.base, first], cwd=copy.place) == "new.txt"


def test_ours_is_known(me: Maintainer, copy: Copy) -> None:
    assert own_repository.tip(copy, BRANCH) is None
    commit = committed(copy)
    assert own_repository.push(copy, BRANCH, own_repository.CommitId(commit), None) == ""
    assert own_repository.tip(copy, BRANCH) == own_repository.BranchTip(commit, True)
    assert "somebody changed it meanwhile" in own_repository.push(copy, BRANCH, copy.base, None)


@pytest.mark.parametrize("what", ["added", "message", "tree", "parent", "theirs"])
def test_what_a_person_changed_is_not_ours(me: Maintainer, copy: Copy, what: str) -> None:
    commit = committed(copy)
    own_repository.push(copy, BRANCH, own_repository.CommitId(commit), None)
    if what == "added":
        me.commit_to(BRANCH, "mine.txt")
    else:
        text = git.text(["log", "-1", "--format=%B", commit], cwd=me.mine)
        tree, parents = f"{commit}^{{tree}}", ["-p", "main"]
        text = text.replace("Why.", "Because.") if what == "message" else "Mine" if what == "theirs" else text
        tree = "main^{tree}" if what == "tree" else tree
        parents = ["-p", "main", "-p", commit] if what == "parent" else parents
        made = git.run(["commit-tree", *parents, "-m", text, tree], cwd=me.mine, env=PERSON).stdout.decode().strip()
        git.run(["update-ref", f"refs/heads/{BRANCH}", made], cwd=me.mine)
    tip = own_repository.tip(copy, BRANCH)
    assert tip is not None
    assert not tip.ours


def test_a_stack_in_a_folder_is_found(me: Maintainer) -> None:
    found = own_repository.locate(me.work / "stacks", "origin")
    assert (found.repository.shown, found.folder) == ("me/stack", "stacks/")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("ext::sh -c true", "the remote has no valid address"),
        ("--upload-pack=x", "the remote has no valid address"),
        ("https://u:secret@host/one", "https://host/one is not a repository of a forge"),
    ],
)
def test_an_address_that_is_none(me: Maintainer, address: str, problem: str) -> None:
    subprocess.run(["git", "config", "remote.origin.url", address], cwd=me.work, check=True)
    with pytest.raises(StackError) as caught:
        own_repository.locate(me.work, "origin")
    assert problem in str(caught.value)
    assert "secret" not in str(caught.value)


def test_no_repository_and_no_remote(me: Maintainer, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    for root, remote, problem in (
        (tmp_path / "alone", "origin", "is not in a git repository"),
        (me.work, "other", "the stack's git has no remote 'other'"),
    ):
        with pytest.raises(StackError) as caught:
            own_repository.locate(root, remote)
        assert problem in str(caught.value)


def test_a_branch_without_a_stack(me: Maintainer) -> None:
    own = own_repository.locate(me.work / "stacks", "origin")
    with pytest.raises(StackError) as caught, own_repository.copied(own, "main"):
        pass
    assert "main of me/stack has no stacks/pins.toml" in str(caught.value)
