# SPDX-License-Identifier: Apache-2.0
"""Packs as git reads them: what is written comes back, and half of it is never seen."""

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.store import git, pack
from stack.store.objects import FILES, Entry, Identity, Objects, blob_id

from ..carry.trees import PROPERTY

NOBODY = Identity("N", "n@x", "1 +0000")


def bare(place: Path) -> Path:
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    return place


@PROPERTY
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=30), st.integers(0, 70_000))
def test_git_reads_what_is_written(tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], size: int) -> None:
    repository = bare(tmp_path_factory.mktemp("pack") / "git")
    blobs = {blob_id(data): ("blob", data) for data in [*contents, os.urandom(size)]}
    pack.write(repository, blobs)
    git.run(["fsck", "--strict", "--full"], env={"GIT_DIR": str(repository)})
    (index,) = (repository / "objects/pack").glob("*.idx")
    git.run(["verify-pack", str(index)])
    for one, (_, data) in blobs.items():
        assert git.run(["cat-file", "blob", one], env={"GIT_DIR": str(repository)}).stdout == data
    made = git.run(["index-pack", "--index-version=2", "-o", str(repository / "again.idx"), str(index.with_suffix(".pack"))])
    assert made.returncode == 0
    assert (repository / "again.idx").read_bytes() == index.read_bytes()


def test_objects_are_there_for_git_when_it_is_asked(tmp_path: Path) -> None:
    with Objects(bare(tmp_path / "git")) as objects:
        blob = objects.write_blob(b"one\n")
        tree = objects.replaced("4b825dc642cb6eb9a060e54bf8d69288fbee4904", {"a/b": Entry(FILES[0], blob)})
        commit = objects.write_commit(tree, (), "Message\n", NOBODY)
        assert not list((tmp_path / "git/objects/pack").glob("*"))
        assert objects.read(commit).endswith(b"Message\n")
        assert git.text(["ls-tree", "-r", "--name-only", commit], cwd=objects.repository) == "a/b"
        later = objects.write_blob(b"two\n")
    assert git.text(["cat-file", "blob", later], cwd=tmp_path / "git") == "two"


def test_the_same_objects_are_written_once(tmp_path: Path) -> None:
    repository = bare(tmp_path / "git")
    for _ in range(2):
        with Objects(repository) as objects:
            objects.write_blob(b"one\n")
            objects.write_blob(b"two\n")
    assert len(list((repository / "objects/pack").glob("*.pack"))) == 1


def test_a_pack_without_its_index_is_not_there(tmp_path: Path) -> None:
    repository = bare(tmp_path / "git")
    data = zlib.compress(b"x") * 9
    pack.write(repository, {blob_id(data): ("blob", data)})
    (index,) = (repository / "objects/pack").glob("*.idx")
    index.unlink()
    assert git.run(["cat-file", "-e", blob_id(data)], cwd=repository, accept=(0, 1)).returncode == 1
    pack.write(repository, {blob_id(data): ("blob", data)})
    assert git.run(["cat-file", "blob", blob_id(data)], cwd=repository).stdout == data


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    repository = bare(tmp_path / "git")
    (repository / "objects/pack").rmdir()
    (repository / "objects/pack").write_text("no folder")
    with (
        pytest.raises(StackError, match=r"git cannot be written \(File exists\): free disk space"),
        Objects(repository) as objects,
    ):
        objects.write_blob(b"one\n")
