# SPDX-License-Identifier: Apache-2.0
"""Upstream's tags and the user's remotes in a working tree."""

import re
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry import remotes, worktree
from stack.carry.remotes import Remote
from stack.model.pins import Source

from .test_worktree import refresh, user_git
from .world import World


@pytest.mark.parametrize(("upstream", "tag"), [("gamma", "v2.0"), ("alpha", "v1.0")])
@pytest.mark.parametrize("source", ["archive", "git"])
def test_the_tag_of_the_pin(world: World, tmp_path: Path, upstream: str, tag: str, source: Source) -> None:
    with world.stores(source) as stores:
        worktree.checkout(stores, upstream, tmp_path / "tree")
    assert user_git(tmp_path / "tree", "merge-base", tag, "HEAD") == user_git(tmp_path / "tree", "rev-parse", tag)
    found = user_git(tmp_path / "tree", "tag").splitlines()
    if source == "archive":
        assert found == ["stack-base", tag]
    else:
        assert user_git(tmp_path / "tree", "rev-parse", tag) == world.commits[f"{upstream} {tag}"]
        assert {*found} == {
            "stack-base",
            *(name.partition(" ")[2] for name in world.commits if name.startswith(f"{upstream} ")),
        }


def test_the_tags_that_the_store_knows(world: World, tmp_path: Path) -> None:
    """A tag that upstream made after the last fetch costs a download; one that is no release says nothing."""
    stated = re.search(r'\[gamma\]\ngit += "file://([^"]+)"', world.read("pins.toml"))
    assert stated is not None
    remote = stated[1]
    local = tmp_path / "remote"
    user_git(tmp_path, "clone", "-q", "--bare", remote, "remote")
    world.edit("pins.toml", f'"file://{remote}"', f'"file://{local}"')
    user_git(local, "tag", "nightly", "v2.0")
    user_git(local, "tag", "stack-base", "v2.1")
    with world.stores("git") as stores:
        stores.obtain("gamma")
    at = user_git(local, "commit-tree", "-m", "later", "v2.0^{tree}")
    user_git(local, "tag", "v9.0", at)
    with world.stores("git") as stores:
        assert stores.tag_commits("gamma")["v9.0"] == at
        worktree.checkout(stores, "gamma", tmp_path / "tree")
    assert {"v2.0", "v2.1", "stack-base"} <= {*user_git(tmp_path / "tree", "tag").splitlines()}
    assert {"v9.0", "nightly"}.isdisjoint(user_git(tmp_path / "tree", "tag").splitlines())
    assert user_git(tmp_path / "tree", "rev-parse", "stack-base") == user_git(tmp_path / "tree", "rev-parse", "v2.0")


def test_a_vendored_upstream_has_no_tag(world: World, tmp_path: Path) -> None:
    with world.stores() as stores:
        worktree.checkout(stores, "beta", tmp_path / "tree")
    assert user_git(tmp_path / "tree", "tag") == "stack-base"


def test_a_remote_of_the_user(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_git(tmp_path, "init", "-q", "mine")
    user_git(tmp_path / "mine", "commit", "-q", "--allow-empty", "-m", "Mine")
    monkeypatch.chdir(tmp_path)
    with world.stores() as stores:
        worktree.checkout(stores, "gamma", tmp_path / "tree", remotes.read(["mine=mine", "forge=https://forge.test/me/gamma"]))
    user_git(tmp_path / "tree", "fetch", "-q", "mine")
    assert user_git(tmp_path / "tree", "branch", "-r").startswith("mine/")
    assert user_git(tmp_path / "tree", "remote", "get-url", "forge") == "https://forge.test/me/gamma"
    assert refresh(world, tmp_path / "tree").changed == ()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["mine"], "'mine' cannot be the name of a remote"),
        (["=https://x"], "'' cannot be the name"),
        (["-x=https://x"], "'-x' cannot be the name"),
        (["a/b=https://x"], "'a/b' cannot be the name"),
        (["a..b=https://x"], "cannot be the name"),
        (["a\n=https://x"], "cannot be the name"),
        (["upstream=https://x"], "the remote upstream is the pin's own"),
        (["a="], "the remote has no valid address"),
        (["a=ext::sh -c true"], "the remote has no valid address"),
        (["a=--upload-pack=x"], "the remote has no valid address"),
        (["a=ssh://-oProxyCommand=x/y"], "the remote has no valid address"),
        (["a=https://x\n[core]"], "the address of a has a control character"),
        (["a=https://x", "a=https://y"], "two remotes are called a"),
    ],
)
def test_a_remote_that_is_none(given: list[str], problem: str) -> None:
    with pytest.raises(StackError) as refused:
        remotes.read(given)
    assert problem in str(refused.value)


def test_the_address_stays_as_it_is() -> None:
    assert remotes.read(["m=git@forge.test:me/x.git"]) == (Remote("m", "git@forge.test:me/x.git"),)
