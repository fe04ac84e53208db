# SPDX-License-Identifier: Apache-2.0
"""Branches of pull requests, pushed to a fork by a contributor who has no rights upstream."""

import threading
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.person import Person
from stack.store import cache, git, pushed_refs
from stack.store.objects import Objects
from stack.upstreaming import versions
from stack.upstreaming.branches import build
from stack.upstreaming.proposal import Proposal
from stack.upstreaming.pushing import PushRow, PushState

from ..carry.world import Files, numbered
from ..store.factories import blob, strays
from .forge import Request
from .world import BASE, Contributor, patch_between, proposal

HOOK = BASE | {"a.py": numbered("a", {10: "hook"})}
HOOKED = BASE | {"a.py": numbered("a", {10: "hooked"})}
OTHER = BASE | {"b.py": numbered("b", {10: "other"})}


@pytest.fixture
def made(tmp_path: Path, me: Contributor) -> "Made":
    return Made(tmp_path, me)


class Made:
    """Proposals on the fetched release."""

    def __init__(self, place: Path, me: Contributor) -> None:
        self.place = place
        self.me = me
        self.count = 0

    def __call__(self, slug: str, after: Files, tag: str = "v1.0") -> Proposal:
        self.count += 1
        patch = patch_between(self.place / f"patch-{self.count}", BASE, after, f"Do {slug}")
        return proposal(self.me.base(tag), slug, patch, real=self.me.source == "git")


def states(rows: tuple[PushRow, ...]) -> list[str]:
    return [row.state.value for row in rows]


def somebody(me: Contributor, branch: str, subject: str = "Mine is better") -> str:
    """A commit of somebody else on a branch of the fork."""
    who = {f"GIT_{kind}_{key}": "Some Body" for kind in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    commit = git.text(["commit-tree", "-p", branch, "-m", subject, f"{branch}^{{tree}}"], cwd=me.mine, env=who)
    git.run(["update-ref", f"refs/heads/{branch}", commit], cwd=me.mine)
    return commit


class TestStates:
    def test_a_new_one(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        [row] = me.push(one)
        assert row.state is PushState.NEW
        assert me.branches() == {"refs/heads/pr/up/one-hook": row.branch.tip}
        assert me.branches(me.store) == me.branches()
        assert git.text(["diff", "--name-only", one.base, row.branch.tip], cwd=me.mine) == "a.py"
        assert git.text(["log", "--format=%s", row.branch.tip], cwd=me.mine) == "Do hook\nsecond\nfirst"
        assert git.text(["show", f"{row.branch.tip}:a.py"], cwd=me.mine).encode() + b"\n" == HOOK["a.py"]
        assert [(one.fork, one.branch, one.commit) for one in pushed_refs.everything(me.store)] == [
            (me.forge.address("me/up"), "pr/up/one-hook", row.branch.tip)
        ]
        assert strays(me.store) == []

    def test_an_unchanged_one_is_left_alone(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        me.push(one)
        before = len(me.forge.asked("git-receive-pack"))
        [row] = me.push(one)
        assert row.state is PushState.UNCHANGED
        assert len(me.forge.asked("git-receive-pack")) == before
        assert list(me.branches()) == ["refs/heads/pr/up/one-hook"]

    def test_a_changed_one_keeps_what_it_was(self, me: Contributor, made: "Made") -> None:
        [first] = me.push(made("hook", HOOK))
        [second] = me.push(made("hook", HOOKED))
        assert (second.state, second.before, second.tag) == (PushState.UPDATED, first.branch.tip, "refs/tags/pr/up/one-hook/v1")
        [third] = me.push(made("hook", OTHER))
        assert (third.state, third.tag) == (PushState.UPDATED, "refs/tags/pr/up/one-hook/v2")
        expected = {
            "refs/heads/pr/up/one-hook": third.branch.tip,
            "refs/tags/pr/up/one-hook/v1": first.branch.tip,
            "refs/tags/pr/up/one-hook/v2": second.branch.tip,
        }
        assert me.branches() == expected
        assert me.branches(me.store) == expected
        # Back to what it was: that version has a name already.
        [fourth] = me.push(made("hook", HOOK))
        assert (fourth.branch.tip, fourth.tag) == (first.branch.tip, "refs/tags/pr/up/one-hook/v3")
        [fifth] = me.push(made("hook", HOOKED))
        assert (fifth.before, fifth.tag) == (first.branch.tip, "refs/tags/pr/up/one-hook/v1")

    def test_what_changed_is_kept_for_the_description(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        [row] = me.push(one)
        assert row.changes is None
        assert not versions.file_of(me.root, one).exists()
        [row] = me.push(made("hook", HOOKED))
        assert row.changes == me.root / ".stack/pulls/up/one-hook.range-diff"
        lines = row.changes.read_text().splitlines()
        assert lines[0].startswith("1: ")
        assert lines[0].endswith("Do hook")
        assert "    -+hook" in lines
        assert "    ++hooked" in lines
        again = row.changes.read_text()
        me.push(made("hook", HOOKED))
        assert row.changes.read_text() == again

    @pytest.mark.parametrize("tags", [("v1.0", "v1.1"), ("v1.1", "v1.0")])
    def test_onto_another_release(self, me: Contributor, made: "Made", tags: tuple[str, str]) -> None:
        me.upstream.commit({"same.py": numbered("same", {5: "theirs"})}, "third")
        me.upstream.tag("v1.1")
        me.publish()
        me.sync()
        me.push(made("hook", HOOK, tags[0]))
        [row] = me.push(made("hook", HOOK, tags[1]))
        assert row.state is PushState.UPDATED
        assert row.changes is not None
        # Only ours is compared, not what upstream did between.
        [line] = row.changes.read_text().splitlines()
        assert line.split()[2] == "="

    def test_deleted_in_the_fork(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        [first] = me.push(one)
        git.run(["update-ref", "-d", "refs/heads/pr/up/one-hook"], cwd=me.mine)
        [row] = me.push(one)
        assert (row.state, row.reason) == (PushState.NEW, "it was deleted there")
        git.run(["update-ref", "-d", "refs/heads/pr/up/one-hook"], cwd=me.mine)
        [row] = me.push(made("hook", HOOKED))
        assert (row.state, row.tag) == (PushState.NEW, "refs/tags/pr/up/one-hook/v1")
        assert me.branches()["refs/tags/pr/up/one-hook/v1"] == first.branch.tip

    def test_several(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK))
        assert states(me.push(made("hook", HOOKED), made("other", OTHER))) == ["updated", "new"]
        assert len([one for one in me.forge.asked("git-receive-pack") if one.pushes]) == 2

    def test_the_store_was_deleted(self, me: Contributor, made: "Made", tmp_path: Path) -> None:
        """It is only a cache: the same commits are made again, and known."""
        one = made("hook", HOOK)
        [first] = me.push(one)
        me.store.rename(tmp_path / "gone")
        me.base()
        [row] = me.push(one)
        assert (row.state, row.branch.tip) == (PushState.UNCHANGED, first.branch.tip)
        [row] = me.push(made("hook", HOOKED))
        assert (row.state, row.before) == (PushState.UPDATED, first.branch.tip)

    def test_numbers_of_versions_are_the_forks_too(self, me: Contributor, made: "Made") -> None:
        [first] = me.push(made("hook", HOOK))
        git.run(["tag", "pr/up/one-hook/v1", "main"], cwd=me.mine)
        git.run(["tag", "pr/up/one-hook/v7", "main"], cwd=me.mine)
        git.run(["tag", "pr/up/one-hook/v99999999999999999999", "main"], cwd=me.mine)
        [row] = me.push(made("hook", HOOKED))
        assert (row.state, row.tag) == (PushState.UPDATED, "refs/tags/pr/up/one-hook/v8")
        assert me.branches()["refs/tags/pr/up/one-hook/v8"] == first.branch.tip

    def test_two_forks(self, me: Contributor, made: "Made") -> None:
        me.forge.make("me/second")
        git.run(["fetch", "--quiet", str(me.theirs), "+main:main"], cwd=me.forge.root / "me/second.git")
        [first] = me.push(made("hook", HOOK))
        [row] = me.push(made("hook", HOOKED), to=me.forge.address("me/second"))
        assert (row.state, row.tag) == (PushState.NEW, None)
        [row] = me.push(made("hook", OTHER))
        assert (row.state, row.before) == (PushState.UPDATED, first.branch.tip)
        assert sorted(one.fork.rpartition("/")[2] for one in pushed_refs.everything(me.store)) == ["second.git", "up.git"]


class TestSomebodyElse:
    def test_a_commit_on_top(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK), made("other", OTHER))
        theirs = somebody(me, "pr/up/one-hook", subject="Better \x1b[31mred")
        rows = me.push(made("hook", HOOKED), made("other", OTHER | {"n.py": b"n\n"}))
        assert states(rows) == ["refused", "updated"]
        assert rows[0].reason == f"somebody changed it there: --over {theirs[:12]} replaces that, and keeps it under a tag"
        [line] = rows[0].differs
        assert line == f"> {theirs[:7]} Some Body: Better ?[31mred"
        assert me.branches()["refs/heads/pr/up/one-hook"] == theirs
        assert me.branches()["refs/heads/pr/up/one-other"] == rows[1].branch.tip
        assert git.run(["cat-file", "-e", theirs], cwd=me.store, accept=(0, 1, 128)).returncode != 0
        assert strays(me.store) == []
        # An unchanged proposal is refused, too: the branch is not what we have.
        assert states(me.push(made("hook", HOOK))) == ["refused"]

    def test_rewritten(self, me: Contributor, made: "Made") -> None:
        [first] = me.push(made("hook", HOOK))
        git.run(["update-ref", "refs/heads/pr/up/one-hook", "main"], cwd=me.mine)
        [row] = me.push(made("hook", HOOKED))
        assert row.state is PushState.REFUSED
        assert row.differs == (f"< {first.branch.tip[:7]} Jörg Writer: Do hook",)

    def test_replaced_by_name(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK), made("other", OTHER))
        theirs = somebody(me, "pr/up/one-hook")
        rows = me.push(made("hook", HOOKED), made("other", OTHER), over=(theirs[:7],))
        assert states(rows) == ["updated", "unchanged"]
        assert (rows[0].before, rows[0].tag) == (theirs, "refs/tags/pr/up/one-hook/v1")
        assert me.branches()["refs/tags/pr/up/one-hook/v1"] == me.branches(me.store)["refs/tags/pr/up/one-hook/v1"] == theirs
        assert rows[0].changes is not None
        assert "Mine is better" in rows[0].changes.read_text()
        assert strays(me.store) == []
        assert git.run(["fsck", "--strict"], cwd=me.store, accept=(0, 1, 2)).returncode == 0

    def test_replaced_where_nothing_of_ours_was_left(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK))
        git.run(["update-ref", "refs/heads/pr/up/one-hook", "main"], cwd=me.mine)
        main = git.text(["rev-parse", "main"], cwd=me.mine)
        [row] = me.push(made("hook", HOOKED), over=(main,))
        assert (row.state, row.before) == (PushState.UPDATED, main)
        assert row.changes is not None
        assert row.changes.read_text() == f"-:  ------- > {row.branch.tip[:7]} Do hook\n"

    @pytest.mark.parametrize("over", ["", "abcdef", "0" * 40, "--all"])
    def test_only_what_was_seen_is_replaced(self, me: Contributor, made: "Made", over: str) -> None:
        me.push(made("hook", HOOK))
        theirs = somebody(me, "pr/up/one-hook")
        with pytest.raises(StackError, match=f"--over ?{over}: no branch to push is at that commit"):
            me.push(made("hook", HOOKED), made("other", OTHER), over=(over,))
        assert me.branches() == {"refs/heads/pr/up/one-hook": theirs}

    def test_from_another_machine(self, me: Contributor, made: "Made", tmp_path: Path) -> None:
        """Another store made the branch that is there: the same commits are known, others have to be named."""
        [first] = me.push(made("hook", HOOK))
        me.store.rename(tmp_path / "gone")
        me.base()
        [row] = me.push(made("hook", HOOKED))
        assert row.state is PushState.REFUSED
        [row] = me.push(made("hook", HOOKED), over=(first.branch.tip,))
        assert (row.state, row.before) == (PushState.UPDATED, first.branch.tip)
        assert row.changes is not None
        assert "    ++hooked" in row.changes.read_text().splitlines()

    def test_many_of_theirs(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK))
        for number in range(25):
            somebody(me, "pr/up/one-hook", subject=f"number {number}")
        [row] = me.push(made("hook", HOOKED))
        assert len(row.differs) == 21
        assert row.differs[-1] == "and 5 more"

    def test_the_button_that_merges_main(self, me: Contributor, made: "Made") -> None:
        """What upstream did meanwhile is not shown as somebody's change, where the store knows it."""
        me.push(made("hook", HOOK))
        for number in range(3):
            me.upstream.commit({"same.py": b"%d\n" % number}, f"upstream {number}")
        me.upstream.tag("v1.1")
        me.publish()
        me.sync()
        branch = "pr/up/one-hook"
        who = {f"GIT_{kind}_{key}": "x" for kind in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
        merge = ["commit-tree", "-p", branch, "-p", "main", "-m", "Merge main", "main^{tree}"]
        git.run(["update-ref", f"refs/heads/{branch}", git.text(merge, cwd=me.mine, env=who)], cwd=me.mine)
        me.base("v1.1")
        [row] = me.push(made("hook", HOOKED))
        assert [line.partition(": ")[2] for line in row.differs] == ["Merge main"]

    def test_a_branch_that_was_never_ours(self, me: Contributor, made: "Made") -> None:
        git.run(["branch", "pr/up/one-hook", "main"], cwd=me.mine)
        theirs = somebody(me, "pr/up/one-hook")
        [row] = me.push(made("hook", HOOK))
        assert row.state is PushState.REFUSED
        assert row.reason.startswith("the fork has this branch, but not from here: --over")
        assert sorted(line[0] for line in row.differs) == ["<", ">"]
        assert me.branches() == {"refs/heads/pr/up/one-hook": theirs}

    @pytest.mark.parametrize("moment", ["while git compares", "while git sends"])
    def test_between_looking_and_pushing(self, me: Contributor, made: "Made", moment: str) -> None:
        me.push(made("hook", HOOK))
        theirs: list[str] = []

        def meanwhile(request: Request) -> None:
            there = request.pushes if moment == "while git sends" else "git-receive-pack" in request.query
            if there and not theirs:
                theirs.append(somebody(me, "pr/up/one-hook"))

        me.forge.before = meanwhile
        rows = me.push(made("hook", HOOKED), made("other", OTHER))
        assert states(rows) == ["refused", "refused"]
        assert me.branches() == {"refs/heads/pr/up/one-hook": theirs[0]}, "all or none"
        assert states(me.push(made("hook", HOOKED), made("other", OTHER))) == ["refused", "new"]


class TestBases:
    def test_an_archive_is_nobodys_commit(self, me: Contributor, made: "Made") -> None:
        me.source = "archive"
        me.configure('[url "nowhere://"]\n\tinsteadOf = https://elsewhere.test/\n')
        with pytest.raises(
            StackError, match=r"one-hook is based on an archive of v1.0, which is not a commit of up: stack fetch up"
        ):
            me.push(made("hook", HOOK), to="https://elsewhere.test/me/up")
        assert me.branches(me.store) == {}
        assert me.forge.asked("git-receive-pack") == []

    def test_on_this_machine_it_can_be_tried(self, me: Contributor, made: "Made") -> None:
        me.source = "archive"
        [row] = me.push(made("hook", HOOK))
        assert (row.state, row.behind) == (PushState.NEW, None)
        assert me.branches() == {"refs/heads/pr/up/one-hook": row.branch.tip}
        assert git.text(["ls-tree", "--name-only", row.branch.tip], cwd=me.mine).split() == [
            "PKG-INFO",
            "a.py",
            "b.py",
            "same.py",
        ]
        [row] = me.push(made("hook", HOOKED))
        assert (row.state, row.tag) == (PushState.UPDATED, "refs/tags/pr/up/one-hook/v1")

    def test_a_plan_that_calls_an_archive_real(self, me: Contributor, made: "Made", tmp_path: Path) -> None:
        me.source = "archive"
        archive = made("hook", HOOK)
        me.source = "git"
        patch = patch_between(tmp_path / "p", BASE, HOOK, "Do hook")
        with pytest.raises(StackError, match="is not in the history of up"):
            me.push(proposal(archive.base, "hook", patch))
        assert me.branches() == {}

    def test_upstream_is_ahead(self, me: Contributor, made: "Made") -> None:
        for number in range(3):
            me.upstream.commit({"same.py": b"%d\n" % number})
        me.publish()
        [row] = me.push(made("hook", HOOK))
        assert (row.state, row.behind) == (PushState.NEW, 3)
        me.upstream.commit({"same.py": b"four\n"})
        me.publish()
        [row] = me.push(made("hook", HOOK))
        assert (row.state, row.behind) == (PushState.UNCHANGED, 4)

    def test_a_fork_that_is_behind(self, me: Contributor, made: "Made") -> None:
        me.upstream.commit({"same.py": b"newer\n"})
        me.upstream.tag("v1.1")
        me.publish()
        one = made("hook", HOOK, "v1.1")
        with pytest.raises(StackError, match=r"me/up.git does not have v1.0 \([0-9a-f]{12}\) of up: bring the fork up to date"):
            me.push(one)
        assert me.branches() == me.branches(me.store) == {}
        me.sync()
        assert states(me.push(one)) == ["new"]

    @pytest.mark.parametrize("how", ["shared", "unnamed"])
    def test_a_fork_that_shares_upstreams_objects(self, me: Contributor, made: "Made", how: str) -> None:
        """As forges keep them: the fork's branches are behind, but the commit is there."""
        for number in range(5):
            me.upstream.commit({"same.py": b"newer %d\n" % number})
        me.upstream.tag("v1.1")
        me.publish()
        if how == "shared":
            (me.mine / "objects/info").mkdir(exist_ok=True)
            (me.mine / "objects/info/alternates").write_text(f"{me.theirs}/objects\n")
        else:
            git.run(["fetch", "--quiet", "--no-tags", str(me.theirs), "main"], cwd=me.mine)
        one = made("hook", HOOK, "v1.1")
        assert states(me.push(one)) == ["new"]
        shown = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]
        there = git.run(shown, cwd=me.store).stdout.split()
        assert not {blob(b"newer %d\n" % number) for number in range(5)} & set(there), "nothing was fetched to be sent"

    def test_no_contents_are_fetched_to_be_pushed(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        me.push(one)
        assert any((me.store / "objects/pack").glob("*.promisor"))
        shown = ["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"]
        there = git.run(shown, cwd=me.store).stdout.split()
        assert blob(BASE["a.py"]) in there, "the patch was applied to it"
        assert blob(BASE["same.py"]) not in there

    def test_upstream_is_out_of_reach(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        me.theirs.rename(me.theirs.with_name("gone"))
        with pytest.raises(StackError, match=r"https://forge.test/them/up cannot be fetched"):
            me.push(one)
        assert me.branches() == {}


class TestRights:
    def test_a_fork_that_is_missing(self, me: Contributor, made: "Made") -> None:
        with pytest.raises(StackError, match=r"me/none.git is not there, or you may not see it: fork the upstream") as caught:
            me.push(made("hook", HOOK), to=me.forge.address("me/none", "me:secret"))
        assert "secret" not in str(caught.value)
        assert me.branches(me.store) == {}

    def test_somebody_elses(self, me: Contributor, made: "Made") -> None:
        me.forge.make("other/up")
        git.run(["fetch", "--quiet", str(me.theirs), "+main:main"], cwd=me.forge.root / "other/up.git")
        with pytest.raises(StackError, match=r"other/up.git does not let you push: is it your own fork"):
            me.push(made("hook", HOOK), to=me.forge.address("other/up"))
        assert me.branches(me.forge.root / "other/up.git") == {}

    @pytest.mark.parametrize("secret", ["", "wrong"])
    def test_credentials(self, me: Contributor, made: "Made", secret: str) -> None:
        me.configure(secret=secret)
        with pytest.raises(StackError, match="wants to know who you are, and git has no credentials") as caught:
            me.push(made("hook", HOOK))
        assert "wrong" not in str(caught.value)
        assert me.branches() == {}
        me.configure()
        assert states(me.push(made("hook", HOOK))) == ["new"]

    def test_a_private_fork(self, me: Contributor, made: "Made") -> None:
        me.forge.hidden.add("me/up")
        assert states(me.push(made("hook", HOOK))) == ["new"]

    def test_a_password_in_the_address(self, me: Contributor, made: "Made", capfd: pytest.CaptureFixture[str]) -> None:
        me.configure(secret="")
        [row] = me.push(made("hook", HOOK), to=me.forge.address("me/up", "me:secret"))
        assert row.state is PushState.NEW
        assert "secret" not in repr(me.records()) + str(row.fork)
        said = capfd.readouterr()
        assert "secret" not in said.out + said.err
        # The same fork, by its address without the password.
        me.configure()
        assert states(me.push(made("hook", HOOK))) == ["unchanged"]

    def test_nobody_signs_off(self, me: Contributor, made: "Made") -> None:
        me.configure(person="")
        with pytest.raises(StackError, match="git does not know who signs off"):
            me.push(made("hook", HOOK))
        assert me.branches() == {}

    def test_a_hook_that_declines(self, me: Contributor, made: "Made") -> None:
        hook = me.mine / "hooks/update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text('#!/bin/sh\ncase "$1" in *other) exit 1;; esac\n')
        hook.chmod(0o755)
        rows = me.push(made("hook", HOOK), made("other", OTHER))
        assert [(row.state, row.reason) for row in rows] == [
            (PushState.REFUSED, "not pushed: the fork takes all or none"),
            (PushState.REFUSED, "hook declined"),
        ]
        assert me.branches() == {}
        assert states(me.push(made("hook", HOOK))) == ["new"]


class TestServers:
    def test_one_that_cannot_take_all_or_none(self, me: Contributor, made: "Made") -> None:
        git.run(["config", "receive.advertiseAtomic", "false"], cwd=me.mine)
        me.push(made("hook", HOOK))
        assert states(me.push(made("hook", HOOKED), made("other", OTHER))) == ["updated", "new"]
        assert len(me.branches()) == 3
        hook = me.mine / "hooks/update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text('#!/bin/sh\ncase "$1" in *other) exit 1;; esac\n')
        hook.chmod(0o755)
        assert states(me.push(made("hook", HOOK), made("other", OTHER | {"n": b"n\n"}))) == ["updated", "refused"]

    def test_an_old_one(self, me: Contributor, made: "Made") -> None:
        me.forge.old = True
        assert states(me.push(made("hook", HOOK))) == ["new"]
        assert states(me.push(made("hook", HOOKED))) == ["updated"]

    def test_the_connection_breaks_while_sending(self, me: Contributor, made: "Made") -> None:
        me.push(made("hook", HOOK))
        before = me.branches()
        me.forge.hear = lambda request, body: body[: len(body) // 2] if request.pushes else body
        with pytest.raises(StackError, match=r"me/up.git broke off: run the command again"):
            me.push(made("hook", HOOKED), made("other", OTHER))
        assert me.branches() == before
        me.forge.hear = lambda request, body: body
        assert states(me.push(made("hook", HOOKED), made("other", OTHER))) == ["updated", "new"]

    @pytest.mark.parametrize("kept", [0, 5])
    def test_only_the_answer_is_lost(self, me: Contributor, made: "Made", kept: int) -> None:
        me.push(made("hook", HOOK))
        me.forge.say = lambda request, body: body[:kept] if request.pushes else body
        assert states(me.push(made("hook", HOOKED), made("other", OTHER))) == ["updated", "new"]
        assert len(me.branches()) == 3
        assert [name for name in me.records() if "/pushing/" in name] == []

    def test_the_answer_is_lost_and_the_fork_away(self, me: Contributor, made: "Made") -> None:
        """Nobody can say now whether it arrived; the next run can, even if the proposal has changed since."""
        me.push(made("hook", HOOK))
        away = me.mine.with_name("away.git")
        me.forge.after = lambda request: (me.mine.rename(away), None)[1] if request.pushes else None
        me.forge.say = lambda request, body: b"" if request.pushes else body
        with pytest.raises(StackError, match="broke off"):
            me.push(made("hook", HOOKED))
        away.rename(me.mine)
        me.forge.after, me.forge.say = (lambda _: None), (lambda _, body: body)
        [row] = me.push(made("hook", OTHER))
        assert (row.state, row.tag) == (PushState.UPDATED, "refs/tags/pr/up/one-hook/v2")
        assert len(me.branches()) == 3

    def test_it_lies_about_what_it_took(self, me: Contributor, made: "Made") -> None:
        def back(request: Request) -> None:
            if request.pushes:
                git.run(["update-ref", "-d", "refs/heads/pr/up/one-hook"], cwd=me.mine)

        me.forge.after = back
        rows = me.push(made("hook", HOOK), made("other", OTHER))
        assert [(row.state, row.reason) for row in rows] == [
            (PushState.REFUSED, "the fork accepted it, but has nothing there"),
            (PushState.NEW, ""),
        ]
        assert [one.branch for one in pushed_refs.everything(me.store)] == ["pr/up/one-other"]

    def test_it_answers_nonsense(self, me: Contributor, made: "Made") -> None:
        one = made("hook", HOOK)
        me.forge.say = lambda request, body: b"\x1b[2J<html>" if "/me/" in request.path else body
        with pytest.raises(StackError, match=r"me/up.git") as caught:
            me.push(one)
        assert "\x1b" not in str(caught.value)
        assert me.branches(me.store) == {}


def test_two_at_once(me: Contributor, made: "Made") -> None:
    one, other = made("hook", HOOK), made("other", OTHER)
    ended: list[list[str]] = []
    with cache.lock(me.store):
        threads = [
            threading.Thread(target=lambda each=each: ended.append(states(me.push(one, each))))
            for each in (other, made("third", HOOKED))
        ]
        for thread in threads:
            thread.start()
        threads[0].join(1)
        assert ended == []
        assert me.branches() == {}
    for thread in threads:
        thread.join()
    assert sorted(ended) == [["new", "new"], ["unchanged", "new"]]
    assert len(me.branches()) == 3


def test_a_branch_of_the_second_wave(me: Contributor, made: "Made", tmp_path: Path) -> None:
    first = made("hook", HOOK)
    both = HOOK | {"a.py": numbered("a", {10: "hook", 11: "more"})}
    second = proposal(first.base, "more", patch_between(tmp_path / "more", HOOK, both, "More"), needs=("up/one-hook",), wave=2)
    [row] = me.push(second, planned=[first])
    assert git.text(["log", "--format=%s", f"{first.base}..{row.branch.tip}"], cwd=me.mine) == "More\nDo hook"


def test_what_is_pushed_is_what_is_built(me: Contributor, made: "Made") -> None:
    one = made("hook", HOOK)
    [row] = me.push(one)
    with Objects(me.store) as objects:
        assert build(objects, [one], [], Person("A Person", "a@person")) == (row.branch,)
