# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.model.ids import CommitId
from stack.model.pins import Pin, Within
from stack.store import git, remote, repository

from .factories import Remote, blob, listing, strays


@pytest.fixture
def upstream(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "upstream")
    made.commit({"a.py": b"old\n", "d/same.py": b"same\n"}, "first")
    made.commit({"a.py": b"new\n"}, "second")
    made.tag("v1.0")
    made.commit({"a.py": b"newer\n"}, "third")
    made.tag("v1.1", annotated=True)
    made.commit({"a.py": b"newest\n"}, "fourth")
    return made


@pytest.fixture
def vendored(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "vendored")
    made.commit({"include/x.h": b"#pragma once\n", "LICENSE": b"free\n"})
    return made


def here(store: Path, objects: list[str]) -> list[bool]:
    """Which objects the store has without asking the remote."""
    script = "".join(f"{name}\n" for name in objects).encode()
    inside = git.run(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], cwd=store, stdin=script).stdout.split()
    return [name.encode() in inside for name in objects]


def test_a_tag_comes_with_its_history_and_without_contents(store: Path, upstream: Remote) -> None:
    commit = remote.fetch(store, upstream.url, "v1.0")
    assert commit == upstream.git("rev-parse", "v1.0")
    assert git.text(["log", "--format=%s", commit], cwd=store) == "second\nfirst"
    assert git.text(["rev-parse", "refs/remotes/upstream/HEAD"], cwd=store) == upstream.git("rev-parse", "main")
    blobs = [blob(content).decode() for content in (b"new\n", b"same\n")]
    assert here(store, [commit, *blobs]) == [True, False, False]
    assert strays(store) == []
    assert git.run(["fsck"], cwd=store).returncode == 0


def test_missing_contents_come_when_they_are_needed(store: Path, upstream: Remote) -> None:
    commit = remote.fetch(store, upstream.url, "v1.0")
    assert git.text(["cat-file", "blob", f"{commit}:a.py"], cwd=store) == "new"
    assert here(store, [blob(b"new\n").decode(), blob(b"same\n").decode()]) == [True, False]


def test_they_come_through_what_only_the_users_configuration_says(
    store: Path, upstream: Remote, home: Path, tmp_path: Path
) -> None:
    # The only way to the server stands in the user's configuration; the user's other settings must not count.
    (home / ".gitconfig").write_text(f'[url "{upstream.url}"]\n\tinsteadOf = nowhere://upstream\n[core]\n\tabbrev = broken\n')
    git._reaching.cache_clear()  # read once in a process
    commit = remote.fetch(store, "nowhere://upstream", "v1.0")
    assert git.text(["cat-file", "blob", f"{commit}:a.py"], cwd=store) == "new"


def test_an_annotated_tag_is_its_commit(store: Path, upstream: Remote) -> None:
    assert remote.fetch(store, upstream.url, "v1.1") == upstream.git("rev-parse", "v1.1^{commit}")
    assert git.text(["cat-file", "-t", "refs/tags/v1.1"], cwd=store) == "tag"


def test_a_second_tag_adds_to_the_first(store: Path, upstream: Remote) -> None:
    remote.fetch(store, upstream.url, "v1.0")
    upstream.commit({"b.py": b"b\n"}, "fifth")
    upstream.tag("v2.0")
    commit = remote.fetch(store, upstream.url, "v2.0")
    assert git.text(["merge-base", commit, "refs/tags/v1.0"], cwd=store) == upstream.git("rev-parse", "v1.0")


def test_commits_by_their_ids(store: Path, upstream: Remote) -> None:
    first = upstream.git("rev-parse", "v1.0^")
    assert remote.fetch(store, upstream.url, first) == first
    assert remote.fetch(store, upstream.url, first[:9]) == first
    upstream.git("checkout", "--quiet", "--orphan", "aside")
    aside = upstream.commit({"x": b"x"})
    upstream.git("checkout", "--quiet", "main")
    assert remote.fetch(store, upstream.url, aside) == aside


def test_a_tag_that_moved_is_followed(store: Path, upstream: Remote) -> None:
    remote.fetch(store, upstream.url, "v1.0")
    upstream.git("tag", "--force", "v1.0", "main")
    assert remote.fetch(store, upstream.url, "v1.0") == upstream.git("rev-parse", "main")


def test_a_remote_that_cannot_leave_contents_out(store: Path, upstream: Remote) -> None:
    upstream.git("config", "uploadpack.allowFilter", "false")
    commit = remote.fetch(store, upstream.url, "v1.0")
    assert here(store, [commit, blob(b"new\n").decode()]) == [True, True]


def test_a_remote_that_moved_house(store: Path, upstream: Remote, tmp_path: Path) -> None:
    remote.fetch(store, upstream.url, "v1.0")
    moved = upstream.path.rename(tmp_path / "elsewhere")
    commit = remote.fetch(store, f"file://{moved}", "v1.1")
    assert git.text(["cat-file", "blob", f"{commit}:a.py"], cwd=store) == "newer"


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("v1.00", "has no tag v1.00: did you mean 'v1.0'?"),
        ("release", "has no tag release: the newest are v1.1, v1.0"),
        ("0" * 40, "has no commit 0000"),
        ("abcdef1", "has no commit abcdef1: give the full 40 digits"),
    ],
)
def test_what_the_remote_does_not_have(store: Path, upstream: Remote, wanted: str, why: str) -> None:
    with pytest.raises(StackError, match=why):
        remote.fetch(store, upstream.url, wanted)
    assert git.text(["for-each-ref"], cwd=store) == ""
    assert strays(store) == []


def test_releases_are_suggested_before_pre_releases(store: Path, upstream: Remote) -> None:
    for tag in ("v1.9", "v9.0rc9", "v9.9rc1"):
        upstream.git("tag", tag, "main")
    with pytest.raises(StackError, match=r"has no tag v9\.9: did you mean 'v1\.9'\?$"):
        remote.fetch(store, upstream.url, "v9.9")
    with pytest.raises(StackError, match=r"has no tag v9\.9rc2: did you mean 'v9\.9rc1'"):
        remote.fetch(store, upstream.url, "v9.9rc2")
    with pytest.raises(StackError, match=r"the newest are v1\.9, v1\.1, v1\.0"):
        remote.fetch(store, upstream.url, "release")


def test_a_remote_without_tags(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StackError, match="no tags at all"):
        remote.fetch(store, Remote(tmp_path / "empty").url, "v1")


def test_a_remote_that_cannot_be_reached(store: Path, tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"cannot be fetched: git ls-remote failed.*--source archive"):
        remote.fetch(store, f"file://{tmp_path}/nothing", "v1")
    with pytest.raises(StackError, match="cannot be fetched") as caught:
        remote.fetch(store, "http://me:secret@127.0.0.1:1/x.git", "v1")
    assert "secret" not in str(caught.value)


def test_what_git_says_shows_no_credentials() -> None:
    url = "https://me:secret@host.test/x.git"
    error = remote._unreachable(url, git.GitError(["fetch"], 128, f"fatal: '{url}' is broken\n"))
    assert "'https://host.test/x.git' is broken" in str(error)
    assert "secret" not in str(error)


class TestGraft:
    @pytest.fixture
    def whole(self, upstream: Remote, vendored: Remote) -> str:
        inside = vendored.git("rev-parse", "HEAD")
        commit = upstream.commit({}, "vendor", submodules={"3rdparty/lib": inside, "3rdparty/other": "1" * 40})
        upstream.tag("v3.0")
        return commit

    def pin(self, vendored: Remote, commit: str = "", path: str = "3rdparty/lib") -> Pin:
        return Pin("lib", vendored.url, commit or vendored.git("rev-parse", "HEAD"), within=Within("up", path))

    def test_the_vendored_tree_stands_in_place_of_its_entry(
        self, store: Path, upstream: Remote, vendored: Remote, whole: str
    ) -> None:
        commit = remote.fetch(store, upstream.url, "v3.0")
        grafted = remote.graft(store, commit, [self.pin(vendored)], pinned=True)
        expected = listing(upstream.path, whole) | {
            b"3rdparty/lib/include/x.h": (b"100644", blob(b"#pragma once\n")),
            b"3rdparty/lib/LICENSE": (b"100644", blob(b"free\n")),
        }
        del expected[b"3rdparty/lib"]
        assert listing(store, grafted) == expected
        assert git.text(["rev-parse", f"{grafted}^@"], cwd=store) == commit
        message = git.text(["log", "-1", "--format=%an %ad%n%B", "--date=raw", grafted], cwd=store)
        assert message.startswith("stack 1700000000 +0000\nVendored sources in place of submodules")
        assert f"Grafted: 3rdparty/lib {vendored.git('rev-parse', 'HEAD')}" in message
        # All of it is here: nothing of the vendored project is left to fetch from a remote that does not have it.
        assert here(store, [blob(b"free\n").decode()]) == [True]
        assert here(store, [vendored.git("rev-parse", "HEAD")]) == [False]
        assert git.run(["fsck"], cwd=store).returncode == 0
        assert strays(store) == []

    def test_the_same_everywhere_and_without_the_remote_again(
        self, store: Path, tmp_path: Path, upstream: Remote, vendored: Remote, whole: str
    ) -> None:
        other = repository.open(tmp_path / "other", "up")
        pin = self.pin(vendored)
        made = [remote.graft(place, remote.fetch(place, upstream.url, "v3.0"), [pin], pinned=True) for place in (store, other)]
        assert made[0] == made[1]
        vendored.path.rename(tmp_path / "gone")
        assert remote.graft(store, CommitId(git.text(["rev-parse", f"{made[0]}^"], cwd=store)), [pin], pinned=True) == made[0]

    def test_a_commit_without_submodules_stays_itself(
        self, store: Path, upstream: Remote, vendored: Remote, whole: str
    ) -> None:
        commit = remote.fetch(store, upstream.url, "v3.0")
        assert remote.graft(store, commit, [], pinned=True) == commit
        assert remote.graft(store, commit, [self.pin(vendored, path="d")], pinned=True) == commit
        assert remote.graft(store, commit, [self.pin(vendored, path="none/such")], pinned=True) == commit

    def test_another_commit_than_the_pinned_one(self, store: Path, upstream: Remote, vendored: Remote, whole: str) -> None:
        commit = remote.fetch(store, upstream.url, "v3.0")
        wrong = self.pin(vendored, "abcdef1")
        with pytest.raises(StackError, match=r"pins.toml says abcdef1: correct the commit of lib"):
            remote.graft(store, commit, [wrong], pinned=True)
        assert remote.graft(store, commit, [wrong], pinned=False) != commit

    def test_what_counts_as_grafted(self, store: Path, upstream: Remote, vendored: Remote, whole: str) -> None:
        commit, pin = remote.fetch(store, upstream.url, "v3.0"), self.pin(vendored)
        grafted = remote.graft(store, commit, [pin], pinned=True)
        assert not remote.is_grafted(store, commit, [pin], pinned=True)
        assert remote.is_grafted(store, commit, [], pinned=True)
        assert remote.is_grafted(store, grafted, [pin], pinned=True)
        assert not remote.is_grafted(store, grafted, [self.pin(vendored, "abcdef1")], pinned=True)
        assert remote.is_grafted(store, grafted, [self.pin(vendored, "abcdef1")], pinned=False)

    def test_a_vendored_commit_that_its_project_does_not_have(
        self, store: Path, upstream: Remote, vendored: Remote, whole: str
    ) -> None:
        commit = remote.fetch(store, upstream.url, "v3.0")
        with pytest.raises(StackError, match="has no commit 1111"):
            remote.graft(store, commit, [self.pin(vendored, path="3rdparty/other")], pinned=False)
        assert strays(store) == []

    def test_a_vendored_project_that_cannot_be_reached(
        self, store: Path, tmp_path: Path, upstream: Remote, vendored: Remote, whole: str
    ) -> None:
        commit, pin = remote.fetch(store, upstream.url, "v3.0"), self.pin(vendored)
        vendored.path.rename(tmp_path / "gone")
        with pytest.raises(StackError, match="vendored cannot be fetched"):
            remote.graft(store, commit, [pin], pinned=True)


def test_what_a_range_changed_comes_in_one_request(store: Path, upstream: Remote) -> None:
    base, onto = (remote.fetch(store, upstream.url, tag) for tag in ("v1.0", "v1.1"))
    for number in range(20):
        upstream.commit({"a.py": b"step %d\n" % number}, f"step {number}")
    upstream.tag("v1.2")
    onto = remote.fetch(store, upstream.url, "v1.2")
    packs = len(list((store / "objects/pack").glob("*.promisor")))
    remote.fetch_contents(store, base, onto)
    wanted = [blob(b"step %d\n" % number).decode() for number in range(20)] + [blob(b"new\n").decode()]
    assert all(here(store, wanted))
    assert here(store, [blob(b"same\n").decode()]) == [False]
    assert len(list((store / "objects/pack").glob("*.promisor"))) == packs + 1
    remote.fetch_contents(store, base, onto)
    assert len(list((store / "objects/pack").glob("*.promisor"))) == packs + 1
    assert "step 19" in git.text(["log", "-p", "--format=%s", f"{base}..{onto}"], cwd=store)
    assert len(list((store / "objects/pack").glob("*.promisor"))) == packs + 1


def test_contents_of_a_remote_that_is_gone(store: Path, upstream: Remote) -> None:
    base, onto = (remote.fetch(store, upstream.url, tag) for tag in ("v1.0", "v1.1"))
    upstream.path.rename(upstream.path.with_name("elsewhere"))
    with pytest.raises(StackError, match="cannot be fetched"):
        remote.fetch_contents(store, base, onto)
