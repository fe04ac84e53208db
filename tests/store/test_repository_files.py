# SPDX-License-Identifier: Apache-2.0
"""Files of a CI in the user's repository: nothing of the user is replaced unasked, and no link is followed."""

from pathlib import Path

import pytest

from stack.base.errors import StackError
from stack.store import git, repository_files

PATH = ".github/workflows/a.yml"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    git.run(["init", "--quiet", str(tmp_path / "repo")])
    return tmp_path / "repo"


def test_what_differs_is_replaced_only_when_asked(top: Path) -> None:
    assert repository_files.write(top, PATH, "one\n", force=False)
    assert not repository_files.write(top, PATH, "one\n", force=False)
    with pytest.raises(StackError, match="is there and differs"):
        repository_files.write(top, PATH, "two\n", force=False)
    assert (top / PATH).read_text() == "one\n"
    assert repository_files.write(top, PATH, "two\n", force=True)
    assert (top / PATH).read_text() == "two\n"


def test_a_link_is_not_followed(top: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (top / ".github").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StackError):
        repository_files.write(top, PATH, "one\n", force=True)
    assert not [*(tmp_path / "elsewhere").iterdir()]


@pytest.mark.parametrize(("name", "wanted"), [("", ""), ("a/b-c", "a/b-c/")])
def test_the_stack_s_folder(top: Path, name: str, wanted: str) -> None:
    (top / name).mkdir(parents=True, exist_ok=True)
    assert repository_files.place(top / name) == (top, wanted)


@pytest.mark.parametrize("name", ["a b", "a'b", "ä"])
def test_a_folder_that_no_workflow_can_hold(top: Path, name: str) -> None:
    (top / name).mkdir()
    with pytest.raises(StackError, match="cannot hold"):
        repository_files.place(top / name)


def test_outside_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="is not in a git repository"):
        repository_files.place(tmp_path)
