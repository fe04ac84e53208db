# SPDX-License-Identifier: Apache-2.0
"""Reports as files: whole or not at all, in the format that the suffix names."""

import json
from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.carry.outcome import Outcome
from stack.reporting import formats
from stack.reporting.report import Report

from .factories import told


@pytest.mark.parametrize(
    ("name", "begins"),
    [("r.html", "<!DOCTYPE html>\n<html"), ("r.HTM", "<!DOCTYPE html>\n<html"), ("r.md", "# A title\n"), ("r.markdown", "# A"), ("r.json", "{\n")],
)  # fmt: skip
def test_the_suffix_chooses_the_format(tmp_path: Path, name: str, begins: str) -> None:
    formats.write(tmp_path / name, told())
    assert (tmp_path / name).read_text().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_json_holds_everything(tmp_path: Path) -> None:
    formats.write(tmp_path / "r.json", told(lambda name: f"{name}\ud800\x1b"))
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["title"] == "A title\ud800\x1b"
    row = found["ladders"][0]["rows"][list(Outcome).index(Outcome.CONFLICT)]
    assert row["cells"] == [
        None,
        {"release": "v3\ud800\x1b", "outcome": "conflict", "open": True},
    ]


def test_a_report_that_cannot_be_made_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(report: Report) -> str:
        raise MemoryError

    (tmp_path / "r.md").write_text("before")
    monkeypatch.setattr(formats, "FORMATS", {".md": fails})
    with pytest.raises(MemoryError):
        formats.write(tmp_path / "r.md", told())
    assert (tmp_path / "r.md").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    (tmp_path / "r.html").symlink_to(tmp_path / "outside")
    formats.write(tmp_path / "r.html", told())
    assert (tmp_path / "outside").read_text() == "kept"
    assert not (tmp_path / "r.html").is_symlink()


@pytest.mark.parametrize(
    ("name", "problem"), [("r", "suffix"), ("r.pdf", "suffix"), ("missing/r.html", "folder"), ("f.html", "folder")]
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "f.html").mkdir()
    with pytest.raises(StackError, match=problem):
        formats.write(tmp_path / name, told())
