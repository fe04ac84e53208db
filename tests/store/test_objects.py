# SPDX-License-Identifier: Apache-2.0
"""Objects are read, asked for early and written as git does it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stack.base.errors import StackError
from stack.model.ids import TreeId
from stack.store import git, objects
from stack.store.objects import EMPTY_TREE, FOLDER, Entry, Objects

PROPERTY = settings(
    deadline=None,
    max_examples=int(os.environ.get("STACK_TEST_EXAMPLES", "30")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MISSING = "1" * 40
FILE, PROGRAM = 0o100644, 0o100755

names = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..") and name.lower() != ".git"
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
contents = st.dictionaries(paths, st.tuples(st.sampled_from((FILE, PROGRAM)), st.binary(max_size=3)), max_size=6)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("objects") / "git"
    git.run(["init", "--quiet", "--bare", "--template=", str(place)])
    return place


def possible(files: dict[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    return {path: file for path, file in files.items() if not any(other.startswith(f"{path}/") for other in files)}


def written(found: Objects, files: dict[str, tuple[int, bytes]]) -> TreeId:
    return found.replaced(EMPTY_TREE, {path: Entry(mode, found.write_blob(data)) for path, (mode, data) in files.items()})


def listed(repository: Path, *args: str) -> Iterator[list[str]]:
    text = git.text([*args], env={"GIT_DIR": str(repository)})
    return (line.split("\t", 1) for line in text.split("\0") if line)


@PROPERTY
@given(st.data())
def test_trees_are_what_git_reads(repository: Path, data: st.DataObject) -> None:
    files, others = possible(data.draw(contents)), possible(data.draw(contents))
    with Objects(repository) as found:
        old, new = written(found, files), written(found, others)
    with Objects(repository) as found:
        rows = list(listed(repository, "ls-tree", "-r", "-z", old))
        assert {path: tuple(head.split()[::2]) for head, path in rows} == {
            path: (f"{entry.mode:o}", entry.id) for path in files if (entry := found.entry(old, path))
        }
        changed = git.text(["diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new], env={"GIT_DIR": str(repository)})
        first = list(found.difference(old, new))
        assert {path for path, _, _ in first} == set(changed.split("\0")) - {""}
        assert list(found.difference(old, new)) == first
        assert [(path, after, before) for path, before, after in first] == list(found.difference(new, old))
        # What is put in place of other things gives the tree that is written from the start.
        gone = {path: None for path, _, after in first if after is None}
        come = {path: after for path, _, after in first if after is not None}
        assert found.replaced(found.replaced(old, gone), come) == new


@PROPERTY
@given(st.data())
def test_what_is_asked_for_early_changes_nothing(repository: Path, data: st.DataObject) -> None:
    """Whatever is expected, and in whatever order things are read then: each has its own content."""
    files = possible(data.draw(contents))
    with Objects(repository) as found:
        tree = written(found, files)
    with Objects(repository) as found:
        for _ in range(data.draw(st.integers(0, 3))):
            some = data.draw(st.lists(st.sampled_from([*files, "no/such", "d", ""]), max_size=4))
            found.expect(data.draw(st.lists(st.sampled_from([tree, EMPTY_TREE]), max_size=2)), some)
            for path in data.draw(st.lists(st.sampled_from(sorted(files)), max_size=3)) if files else []:
                entry = found.entry(tree, path)
                assert entry is not None
                assert found.read(entry.id) == files[path][1]
            if data.draw(st.booleans()):
                with pytest.raises(StackError, match="is missing"):
                    found.read(MISSING)


def many(found: Objects, count: int, size: int) -> tuple[TreeId, dict[str, bytes]]:
    files = {f"d{number % 7}/{number}": b"%d\n" % number * size for number in range(count)}
    return written(found, {path: (FILE, data) for path, data in files.items()}), files


def test_more_is_asked_for_than_fits_into_a_pipe(repository: Path) -> None:
    """Git and this process must never wait for each other: more ids and more answers than their pipes hold."""
    with Objects(repository) as found:
        tree, files = many(found, 3000, 200)
    with Objects(repository) as found:
        found.expect([tree], files)
        for path in reversed(files):
            entry = found.entry(tree, path)
            assert entry is not None
            assert found.read(entry.id) == files[path]


def test_a_missing_object_among_those_that_are_expected(repository: Path) -> None:
    with Objects(repository) as found:
        blob = found.write_blob(b"there\n")
        broken = found.replaced(EMPTY_TREE, {"a": Entry(FILE, MISSING), "b": Entry(FILE, blob)})
    with Objects(repository) as found:
        found.expect([broken], ["a", "b"])
        assert found.read(blob) == b"there\n"
        for _ in range(2):
            with pytest.raises(StackError, match="is missing"):
                found.read(MISSING)
        assert found.read(blob) == b"there\n"


def test_what_nobody_reads_is_left(repository: Path) -> None:
    with Objects(repository) as found:
        tree, files = many(found, 200, 5000)
    with Objects(repository) as found:
        found.expect([tree], files)
    assert found.entries(tree)["d0"].mode == FOLDER


def test_memory_is_bounded(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_KEPT", 10_000)
    with Objects(repository) as found:
        tree, files = many(found, 100, 300)
        assert sum(map(len, found._kept.values())) < 20_000
    with Objects(repository) as found:
        found.expect([tree], files)
        for path, data in files.items():
            entry = found.entry(tree, path)
            assert entry is not None
            assert found.read(entry.id) == data
            assert sum(map(len, found._kept.values())) < 20_000
