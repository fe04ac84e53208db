# SPDX-License-Identifier: Apache-2.0
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import cache, git, repository
from stack.store.objects import Objects

from .factories import strays


def commit_in(repo: Path, name: str = "refs/stack/x") -> str:
    stream = b"blob\nmark :1\ndata 2\nhi\ncommit %s\ncommitter a <b> 0 +0000\ndata 0\nM 100644 :1 a\ndone\n" % name.encode()
    git.run(["-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done"], cwd=repo, stdin=stream)
    return git.text(["rev-parse", name], cwd=repo)


@pytest.fixture
def filled(store: Path) -> Path:
    with repository.incoming(store) as place:
        repository.adopt(store, place / "objects/pack", {"refs/stack/x": commit_in(place)})
    return store


def test_a_store_is_made_once(tmp_path: Path) -> None:
    store = repository.open(tmp_path, "vllm")
    assert store == cache.upstream_store(tmp_path, "vllm")
    made = store.stat().st_ino
    assert repository.open(tmp_path, "vllm").stat().st_ino == made
    assert git.text(["config", "gc.auto"], cwd=store) == "0"
    assert git.text(["config", "core.logAllRefUpdates"], cwd=store) == "false"
    assert git.text(["rev-parse", "--is-bare-repository"], cwd=store) == "true"
    assert list(store.parent.glob(".*")) == []


def test_what_is_adopted_is_there_and_what_carried_it_is_gone(filled: Path) -> None:
    assert git.text(["cat-file", "blob", "refs/stack/x:a"], cwd=filled) == "hi"
    assert strays(filled) == []
    assert git.run(["fsck", "--strict"], cwd=filled).returncode == 0
    repository.check(filled)


def test_a_borrowing_repository_sees_the_stores_objects(filled: Path) -> None:
    commit = git.text(["rev-parse", "refs/stack/x"], cwd=filled)
    with repository.incoming(filled, borrowing=True) as place:
        assert git.text(["cat-file", "-t", commit], cwd=place) == "commit"
    with repository.incoming(filled) as place, pytest.raises(git.GitError):
        git.text(["cat-file", "-t", commit], cwd=place)


def test_refs_change_together_or_not_at_all(filled: Path) -> None:
    commit = git.text(["rev-parse", "refs/stack/x"], cwd=filled)
    with pytest.raises(git.GitError):
        repository.set_refs(filled, {"refs/stack/new": commit, "refs/stack/x": "1" * 40})
    assert git.text(["for-each-ref", "--format=%(refname)"], cwd=filled) == "refs/stack/x"


def damage_packs(store: Path) -> None:
    for pack in store.glob("objects/pack/*.pack"):
        pack.unlink()


def truncate_packs(store: Path) -> None:
    for pack in store.glob("objects/pack/*.pack"):
        pack.chmod(0o644)
        os.truncate(pack, pack.stat().st_size // 2)


def empty_ref(store: Path) -> None:
    (store / "refs/stack/x").write_text("")


def dangle_ref(store: Path) -> None:
    (store / "refs/stack/y").write_text("1" * 40 + "\n")


@pytest.mark.parametrize(
    "harm",
    [
        damage_packs,
        truncate_packs,
        empty_ref,
        dangle_ref,
        lambda store: (store / "HEAD").unlink(),
        lambda store: (store / "config").write_text("[core\n"),
        lambda store: shutil.rmtree(store / "objects"),
        lambda store: shutil.rmtree(store / "refs"),
    ],
    ids=["packs", "torn packs", "empty ref", "dangling ref", "HEAD", "config", "objects", "refs"],
)
def test_a_damaged_store_is_named_with_what_to_do(filled: Path, harm: object) -> None:
    repository.check(filled)
    harm(filled)  # type: ignore[operator]
    with pytest.raises(StackError, match=rf"store {re.escape(str(filled))} is damaged .*delete that folder and fetch again"):
        repository.open(filled.parents[1], "pkg")


def test_a_file_in_the_stores_place(tmp_path: Path) -> None:
    place = cache.upstream_store(tmp_path, "pkg")
    place.parent.mkdir(parents=True)
    place.write_text("")
    with pytest.raises(StackError, match="damaged"):
        repository.open(tmp_path, "pkg")


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "upstreams").write_text("")
    with pytest.raises(StackError, match="cannot write"):
        repository.open(tmp_path, "pkg")


def test_what_killed_processes_left_is_swept(filled: Path) -> None:
    left = [filled / "incoming-dead/objects", filled.parent / f".{filled.name}-dead"]
    for folder in left:
        folder.mkdir(parents=True)
    locks = [filled / "packed-refs.lock", filled / "refs/stack/x.lock", filled / "config.lock"]
    old = [filled / "objects/pack/tmp_pack_old", filled / "objects/ab/tmp_obj_old"]
    new = filled / "objects/pack/tmp_pack_new"
    (filled / "objects/ab").mkdir()
    for file in [*locks, *old, new]:
        file.write_text("")
    for file in old:
        os.utime(file, (0, 0))
    repository.sweep(filled)
    assert [path for path in [*left, *locks, *old] if path.exists()] == []
    assert new.exists()  # a git that fetches a missing object may be writing it
    repository.check(filled)


def test_a_lock_of_a_git_that_lives_is_waited_for(filled: Path) -> None:
    lock = filled / "packed-refs.lock"
    lock.write_text("")
    started = time.monotonic()
    repository.sweep(filled)
    assert time.monotonic() - started >= 0.9
    assert not lock.exists()


def test_a_failure_inside_leaves_nothing(store: Path) -> None:
    with pytest.raises(KeyboardInterrupt), repository.incoming(store) as place:
        commit_in(place)
        raise KeyboardInterrupt
    assert strays(store) == []
    assert list(store.glob("objects/pack/*")) == []


def test_many_packs_become_few_and_nothing_is_lost(filled: Path) -> None:
    packs = filled / "objects/pack"
    written = []
    for number in range(40):
        with Objects(filled) as objects:
            written.append(objects.write_blob(f"named by no ref {number}".encode()))
    repository.tidy(filled)
    assert len(list(packs.glob("*.pack"))) == 41
    for number in range(40, 80):
        with Objects(filled) as objects:
            written.append(objects.write_blob(f"named by no ref {number}".encode()))
    with Objects(filled) as reading:
        reading.read(written[0])
        repository.open(filled.parents[1], filled.stem)
        assert len(list(packs.glob("*.pack"))) < 5
        assert reading.read(written[-1]) == b"named by no ref 79"  # a git that was reading meanwhile finds it, too
    kinds = git.run(["cat-file", "--batch-check"], cwd=filled, stdin="\n".join(written).encode()).stdout.decode()
    assert kinds.count(" blob ") == len(written)
    assert git.text(["cat-file", "blob", "refs/stack/x:a"], cwd=filled) == "hi"
