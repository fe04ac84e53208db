# SPDX-License-Identifier: Apache-2.0
"""A branch with one commit per patch: on upstream's own commit, and never over what an export did not put there."""

import re
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.exporting import branch
from stack.carry.exporting.branch import BranchState, Exported, Target
from stack.model import switch
from stack.model.pins import Source
from stack.store import fork as forks
from stack.store import git

from ..importing.test_hostile_clones import arm
from ..test_worktree import user_git
from ..world import World, numbered

SUBJECTS = ["Hook main", "[tool] Flag für das Werkzeug", "Fix limit"]


def remote_of(world: World, upstream: str = "gamma") -> str:
    found = re.search(rf'\[{upstream}\][^\n]*\ngit += "([^"]+)"', world.read("pins.toml"))
    assert found is not None
    return found[1]


@pytest.fixture
def clone(world: World, tmp_path: Path) -> Path:
    """The user's clone of gamma."""
    user_git(tmp_path, "clone", "-q", remote_of(world), "clone")
    return tmp_path / "clone"


@pytest.fixture
def bare(world: World, tmp_path: Path) -> str:
    """The address of a fork of gamma."""
    user_git(tmp_path, "clone", "-q", "--bare", remote_of(world), "fork.git")
    return f"file://{tmp_path}/fork.git"


def export(
    world: World, to: object, name: str = "mine", *, upstream: str = "gamma", over: str | None = None,
    source: Source = "archive", plain: bool = False,
) -> Exported:  # fmt: skip
    with world.stores(source) as stores:
        return branch.export(stores, upstream, Target(name, str(to), over), plain=plain)


def subjects(folder: Path, revisions: str) -> list[str]:
    return user_git(folder, "log", "--reverse", "--format=%s", revisions).splitlines()


def drop_last(world: World) -> None:
    """Another stack: without its last patch of gamma."""
    text = world.read("stacks/two/series.toml").partition('[[patch]]\nupstream = "gamma"')[0]
    files = {"stacks/two/series.toml": text.encode(), "stacks/two/gamma/fix-limit.patch": None}
    switch.apply(world.root, files, title="drop")


def test_into_a_clone_on_upstreams_own_commit(world: World, clone: Path) -> None:
    """The stack's sources are archives; the clone has the real commit."""
    done = export(world, clone)
    assert (done.state, done.before) == (BranchState.NEW, None)
    assert subjects(clone, f"{world.commits['gamma v2.0']}..mine") == SUBJECTS
    assert done.chain.base == world.commits["gamma v2.0"]
    assert user_git(clone, "rev-parse", "mine") == done.chain.tip
    assert user_git(clone, "log", "-1", "--format=%B", "mine").endswith("Stack-Series: two\nStack-Patch: gamma/fix-limit.patch")
    assert user_git(clone, "status", "--porcelain") == ""
    assert export(world, clone).state is BranchState.UNCHANGED


def test_without_trailers(world: World, clone: Path) -> None:
    export(world, clone, plain=True)
    assert "Stack-" not in user_git(clone, "log", "--format=%B", "mine")
    assert subjects(clone, "mine")[-3:] == SUBJECTS


def test_a_newer_stack_replaces_what_an_export_made(world: World, clone: Path) -> None:
    first = export(world, clone)
    drop_last(world)
    done = export(world, clone)
    assert (done.state, done.before) == (BranchState.UPDATED, first.chain.tip)
    assert subjects(clone, "mine")[-2:] == SUBJECTS[:2]
    assert user_git(clone, "log", "-g", "--format=%H", "mine").splitlines() == [done.chain.tip, first.chain.tip]


@pytest.mark.parametrize("case", ["somebody's", "moved"])
def test_a_branch_of_the_user_is_refused_unless_they_name_its_commit(world: World, clone: Path, case: str) -> None:
    if case == "moved":
        export(world, clone)
    user_git(clone, "checkout", "-q", *([] if case == "moved" else ["-b"]), "mine")
    (clone / "work").write_text("of hours\n")
    user_git(clone, "add", "work")
    user_git(clone, "commit", "-q", "-m", "Work")
    theirs = user_git(clone, "rev-parse", "HEAD")
    user_git(clone, "checkout", "-q", "--detach")
    drop_last(world)
    refused = export(world, clone)
    assert refused.state is BranchState.REFUSED
    why = "has moved since the last export" if case == "moved" else "is there, and no export made it"
    assert refused.reason == f"mine {why}: --force-with-lease={theirs[:12]} replaces it"
    assert export(world, clone, over="0" * 12).state is BranchState.REFUSED
    assert user_git(clone, "rev-parse", "mine") == theirs
    done = export(world, clone, over=theirs[:12])
    assert (done.state, done.before) == (BranchState.UPDATED, theirs)
    assert user_git(clone, "rev-parse", "mine") == done.chain.tip
    assert export(world, clone).state is BranchState.UNCHANGED


def test_a_branch_that_is_checked_out(world: World, clone: Path) -> None:
    export(world, clone)
    user_git(clone, "checkout", "-q", "mine")
    with pytest.raises(StackError, match=f"mine is checked out in {clone}: check out another branch there"):
        export(world, clone)


def test_hooks_of_the_clone_do_not_run(world: World, clone: Path, tmp_path: Path) -> None:
    hook = clone / ".git/hooks/reference-transaction"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    export(world, clone)
    assert not (tmp_path / "ran").exists()


def test_settings_of_a_clone_that_gets_the_pinned_tree_run_no_program(world: World, tmp_path: Path) -> None:
    """It lacks upstream's commit, so git copies the tree from the store into it."""
    place = tmp_path / "clone"
    git.run(["init", "--quiet", str(tmp_path / "lender")])
    git.run(["init", "--quiet", str(place)])
    trace = arm(place, tmp_path)
    git.run(["config", "--unset", "core.worktree"], cwd=place)
    (place / ".git/objects/info/alternates").write_text(f"{tmp_path}/lender/.git/objects\n")
    done = export(world, place)
    assert git.text(["rev-parse", "refs/heads/mine"], env={"GIT_DIR": str(place / ".git")}) == done.chain.tip
    assert not trace.exists()


def asking(world: World, place: Path, ran: Path) -> None:
    """Let a clone get what it lacks from gamma's remote, with a program that leaves a trace."""
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": remote_of(world),
        "remote.origin.uploadpack": f"touch {ran}; git-upload-pack",
    }
    for key, value in settings.items():
        git.run(["config", key, value], cwd=place)


def test_a_clone_that_lacks_the_commit_asks_nobody(world: World, tmp_path: Path) -> None:
    place, ran, commit = tmp_path / "partial", tmp_path / "ran", world.commits["gamma v2.0"]
    # Git never asks a remote for an abbreviated id.
    world.edit("pins.toml", f'"{commit[:9]}"', f'"{commit}"')
    git.run(["init", "--quiet", str(place)])
    asking(world, place, ran)
    with pytest.raises(StackError, match="the clone lacks"):
        export(world, place, source="git")
    assert not ran.exists()
    git.run(["rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=place)
    assert ran.exists()  # so the clone would have asked


def test_a_clone_that_lacks_contents_asks_nobody(world: World, tmp_path: Path) -> None:
    place, ran = tmp_path / "partial", tmp_path / "ran"
    source = Path(remote_of(world).removeprefix("file://"))
    git.run(["config", "uploadpack.allowFilter", "true"], cwd=source)
    git.run(["clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{source}", str(place)])
    asking(world, place, ran)
    with pytest.raises(StackError, match=r"is a partial clone, and lacks contents .*git -C .* fetch --refetch --no-filter"):
        export(world, place)
    assert not ran.exists()
    assert user_git(place, "branch", "--list", "mine") == ""
    git.run(["fetch", "--quiet", "--refetch", "--no-filter"], cwd=place)
    assert export(world, place).state is BranchState.NEW


def test_a_repository_without_upstreams_commit(world: World, tmp_path: Path) -> None:
    user_git(tmp_path, "init", "-q", "empty")
    done = export(world, tmp_path / "empty")
    assert done.state is BranchState.NEW
    assert subjects(tmp_path / "empty", "mine")[1:] == SUBJECTS
    user_git(tmp_path / "empty", "checkout", "-q", "mine")
    assert (tmp_path / "empty/gamma/main.py").read_bytes() == numbered("main", {10: "hook", 30: "limit, fixed"})
    with pytest.raises(StackError, match=r"the clone lacks \w{9} of gamma: in the clone: git fetch file"):
        export(world, tmp_path / "empty", "other", source="git")


def test_patches_of_vendored_files_stand_on_the_grafted_tree(world: World, tmp_path: Path) -> None:
    """In upstream's own commit, `3rd/beta` is a submodule."""
    user_git(tmp_path, "clone", "-q", remote_of(world, "alpha"), "clone")
    done = export(world, tmp_path / "clone", upstream="alpha", source="git")
    assert subjects(tmp_path / "clone", "mine")[-2:] == ["Core switch", "Open header"]
    assert user_git(tmp_path / "clone", "merge-base", "mine", "v1.0") == world.commits["alpha v1.0"]
    assert done.chain.base != world.commits["alpha v1.0"]


def test_pushed_with_an_exact_lease(world: World, bare: str, clone: Path) -> None:
    first = export(world, bare, source="git")
    assert first.state is BranchState.NEW
    assert export(world, bare, source="git").state is BranchState.UNCHANGED
    drop_last(world)
    second = export(world, bare, source="git")
    assert (second.state, second.before) == (BranchState.UPDATED, first.chain.tip)
    user_git(clone, "fetch", "-q", bare, "mine")
    assert user_git(clone, "rev-parse", "FETCH_HEAD") == second.chain.tip
    user_git(clone, "checkout", "-q", "FETCH_HEAD")
    user_git(clone, "commit", "-q", "--allow-empty", "-m", "Of somebody else")
    user_git(clone, "push", "-q", bare, "HEAD:mine")
    theirs = user_git(clone, "rev-parse", "HEAD")
    world.edit("stacks/one/gamma/hook-main.patch", "Why it is", "Why else it is")
    refused = export(world, bare, source="git")
    assert (refused.state, refused.before) == (BranchState.REFUSED, theirs)
    assert "has moved since the last export: --force-with-lease=" in refused.reason
    assert export(world, bare, source="git", over=theirs[:7]).state is BranchState.UPDATED


def test_a_branch_that_moves_during_the_push(world: World, bare: str, clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease holds: what was seen before the push is what may be replaced."""
    push = forks.push

    def late(*args: object, **options: object) -> object:
        user_git(clone, "push", "-q", bare, "HEAD:refs/heads/mine")
        return push(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(forks, "push", late)
    done = export(world, bare, source="git")
    assert (done.state, done.reason) == (BranchState.REFUSED, "somebody changed it meanwhile: run it again")
    assert user_git(clone, "ls-remote", bare, "mine").split()[0] == user_git(clone, "rev-parse", "HEAD")


def test_a_push_of_which_only_the_answer_was_lost(world: World, bare: str, monkeypatch: pytest.MonkeyPatch) -> None:
    push = forks.push

    def silent(*args: object, **options: object) -> object:
        push(*args, **options)  # type: ignore[arg-type]
        raise StackError("broke off", "run it again")

    with monkeypatch.context() as patched:
        patched.setattr(forks, "push", silent)
        with pytest.raises(StackError, match="broke off"):
            export(world, bare, source="git")
    drop_last(world)
    assert export(world, bare, source="git").state is BranchState.UPDATED


def test_what_cannot_be_pushed(world: World, bare: str, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"v2\.0 from an archive is not a commit of gamma: run it with --source git"):
        export(world, "https://forge.invalid/me/gamma")
    with pytest.raises(StackError, match="is the upstream itself"):
        export(world, remote_of(world), source="git")
    user_git(tmp_path, "init", "-q", "--bare", "other.git")
    with pytest.raises(StackError, match=r"lacks \w{12} of gamma: bring it up to date"):
        export(world, f"file://{tmp_path}/other.git", source="git")
    assert export(world, bare).state is BranchState.NEW  # on this machine, where nobody else sees it


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a b", "x.lock", "a\n", "refs/../x", "@{-1}"])
def test_a_name_that_is_none(world: World, clone: Path, name: str) -> None:
    with pytest.raises(StackError, match="cannot be the name of a branch"):
        export(world, clone, name)


@pytest.mark.parametrize("over", ["HEAD", "12345", "mine", "g" * 12, ""])
def test_a_lease_that_names_no_commit(world: World, clone: Path, over: str) -> None:
    with pytest.raises(StackError, match="is not a commit: name it by 7 digits or more"):
        export(world, clone, over=over)
