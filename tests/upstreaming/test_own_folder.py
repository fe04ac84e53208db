# SPDX-License-Identifier: Apache-2.0
"""A folder that a command replaces as a whole: nothing that somebody else put there goes, and nothing is written elsewhere."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.upstreaming.own_folder import WRITTEN, exchange, replace

FILES = {Path("index.html"): b"page", Path("up/one/0001-a.patch"): b"patch"}


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_what_it_wrote_is_replaced(tmp_path: Path) -> None:
    replace(tmp_path / "out", FILES, "--preview")
    replace(tmp_path / "out", {Path("index.html"): b"new"}, "--preview")
    assert {name: data for name, data in tree(tmp_path / "out").items() if name != WRITTEN} == {"index.html": b"new"}
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["notes.txt", "index.html", "mine/work.patch"])
def test_what_a_person_put_there_stays(name: str, tmp_path: Path) -> None:
    file = tmp_path / "out" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"precious")
    before = tree(tmp_path)
    with pytest.raises(StackError, match="was not written by --preview"):
        replace(tmp_path / "out", FILES, "--preview")
    assert tree(tmp_path) == before


def test_what_a_person_changed_stays(tmp_path: Path) -> None:
    replace(tmp_path / "out", FILES, "--preview")
    (tmp_path / "out/index.html").write_bytes(b"my words")
    before = tree(tmp_path)
    with pytest.raises(StackError, match="was changed since"):
        replace(tmp_path / "out", FILES, "--preview")
    assert tree(tmp_path) == before


def test_a_folder_by_way_of_one_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_bytes(b"precious")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StackError, match="was not written by --preview"):
        replace(Path("nope/.."), FILES, "--preview")
    assert tree(tmp_path) == {"notes.txt": b"precious"}


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/index.html").write_bytes(b"keep")
    (tmp_path / ".out.part").symlink_to("elsewhere")
    replace(tmp_path / "out", FILES, "--preview")
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(StackError, match="is not a folder"):
        replace(tmp_path / "link", FILES, "--preview")
    (tmp_path / "out/up/one/more").symlink_to("../../../elsewhere")
    with pytest.raises(StackError, match="was not written by"):
        replace(tmp_path / "out", FILES, "--preview")
    assert tree(tmp_path / "elsewhere") == {"index.html": b"keep"}


def test_where_the_exchange_fails_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/index.html").write_bytes(b"page")
    with pytest.raises(OSError, match="nothing"):
        exchange(tmp_path / "out", tmp_path / "nothing", tmp_path / "old")
    assert tree(tmp_path) == {"out/index.html": b"page"}


def test_what_came_into_it_meanwhile_stays(tmp_path: Path) -> None:
    for name in ("out", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "out/notes.txt").write_bytes(b"precious")

    def refuse(old: Path) -> None:
        raise StackError(f"{[each.name for each in old.iterdir()]} came meanwhile", "")

    with pytest.raises(StackError, match="notes"):
        exchange(tmp_path / "out", tmp_path / "new", tmp_path / "old", refuse)
    assert tree(tmp_path) == {"out/notes.txt": b"precious"}
