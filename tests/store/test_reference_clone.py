# SPDX-License-Identifier: Apache-2.0
"""Objects that a clone of the user's has are copied, not downloaded; the store needs the clone only while it fetches."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import git, remote

from .factories import Remote, strays
from .test_remote import here

CONTENT = b"".join(b"line %d\n" % number for number in range(2000))


@pytest.fixture
def upstream(tmp_path: Path) -> Remote:
    made = Remote(tmp_path / "upstream")
    made.commit({"a.c": CONTENT}, "first")
    made.tag("v1.0")
    return made


def clone(upstream: Remote, place: Path, *options: str) -> Path:
    git.run(["clone", "--quiet", *options, upstream.url, str(place)])
    return place


def objects(store: Path) -> list[str]:
    listed = git.text(["cat-file", "--batch-all-objects", "--batch-check=%(objectname)"], cwd=store)
    return listed.split()


def test_what_the_clone_has_is_copied_and_not_asked_for(store: Path, upstream: Remote, tmp_path: Path) -> None:
    place = clone(upstream, tmp_path / "clone")
    second = upstream.commit({"a.c": CONTENT + b"end\n"}, "second")
    upstream.tag("v1.1")
    commit = remote.fetch(store, upstream.url, "v1.1", reference=place)
    assert commit == second
    shipped = {path.stem for path in (store / "objects/pack").glob("*.promisor")}
    [theirs] = [git.text(["verify-pack", "-v", f"objects/pack/{name}.pack"], cwd=store) for name in shipped]
    assert second in theirs
    assert upstream.git("rev-parse", "v1.0") not in theirs
    first = upstream.git("rev-parse", "v1.0:a.c")
    assert here(store, [first, upstream.git("rev-parse", "v1.1:a.c")]) == [True, False]


def test_the_store_needs_neither_the_clone_nor_its_refs_afterwards(store: Path, upstream: Remote, tmp_path: Path) -> None:
    place = clone(upstream, tmp_path / "clone")
    commit = remote.fetch(store, upstream.url, "v1.0", reference=place)
    place.rename(tmp_path / "gone")
    upstream.path.rename(tmp_path / "gone too")
    assert git.run(["cat-file", "blob", f"{commit}:a.c"], cwd=store).stdout == CONTENT
    assert git.run(["fsck", "--full"], cwd=store).returncode == 0
    assert not (store / "objects/info/alternates").exists()
    assert "reference" not in git.text(["for-each-ref"], cwd=store)
    assert strays(store) == []


def test_a_partial_clone_lends_its_history(store: Path, upstream: Remote, tmp_path: Path) -> None:
    place = clone(upstream, tmp_path / "clone", "--filter=blob:none", "--bare")
    before = objects(place)
    commit = remote.fetch(store, upstream.url, "v1.0", reference=place)
    assert objects(place) == before  # it was not made to download what it lacks
    assert here(store, [commit, upstream.git("rev-parse", "v1.0:a.c")]) == [True, False]


def test_a_clone_that_is_none_or_shallow(store: Path, upstream: Remote, tmp_path: Path) -> None:
    upstream.commit({"b.c": b"b\n"}, "second")
    with pytest.raises(StackError, match="is not a git repository: name your clone with --reference"):
        remote.fetch(store, upstream.url, "v1.0", reference=tmp_path)
    with pytest.raises(StackError, match="is not a folder"):
        remote.fetch(store, upstream.url, "v1.0", reference=tmp_path / "nothing")
    shallow = clone(upstream, tmp_path / "shallow", "--depth=1")
    with pytest.raises(StackError, match="is a shallow clone, which has no history to lend"):
        remote.fetch(store, upstream.url, "v1.0", reference=shallow)
    assert git.text(["for-each-ref"], cwd=store) == ""
    assert strays(store) == []


def test_another_project_lends_nothing_and_does_no_harm(store: Path, upstream: Remote, tmp_path: Path) -> None:
    other = Remote(tmp_path / "other")
    other.commit({"x": b"x\n"})
    commit = remote.fetch(store, upstream.url, "v1.0", reference=other.path)
    assert git.text(["log", "--format=%s", commit], cwd=store) == "first"
